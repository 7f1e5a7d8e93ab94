/* SPDX-License-Identifier: Apache-2.0 */
/* Linux AIO by its system calls. */
#include <linux/aio_abi.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AIO_MAX 8

/* @code: IOCB_CMD_*; @data: that the event has, too. */
static inline struct iocb aio_request(int code, int fd, const void *buffer, size_t bytes,
				      unsigned long long data)
{
	return (struct iocb){ .aio_data = data,
			      .aio_lio_opcode = (unsigned short)code,
			      .aio_fildes = (unsigned)fd,
			      .aio_buf = (unsigned long long)(size_t)buffer,
			      .aio_nbytes = bytes };
}

/* Asks for the first @count (at most AIO_MAX) and waits until they are done; negative: the kernel
 * refuses it. */
static inline long aio_ask(aio_context_t context, struct iocb *requests, long count)
{
	struct iocb *list[AIO_MAX];

	for (long i = 0; i < count; i++)
		list[i] = &requests[i];
	return syscall(SYS_io_submit, context, count, list);
}

/* Bytes of @count events; @call: SYS_io_getevents or SYS_io_pgetevents. */
static inline long aio_collect(aio_context_t context, long call, long count)
{
	struct io_event events[AIO_MAX];
	long sum = 0, n = syscall(call, context, count, count, events, NULL, NULL);

	for (long i = 0; i < n; i++)
		sum += events[i].res;
	return n == count ? sum : -1;
}
