/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types that BPF programs would take from vmlinux.h. These are integer types, the few fields of
 * kernel structures that are read (libbpf relocates each access to the running kernel), and the few
 * constants of <linux/bpf.h>, whose values are kernel ABI. Never included by the host. */
#ifndef PROFD_BPF_TYPES_H
#define PROFD_BPF_TYPES_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;

typedef __s8 int8_t;
typedef __u8 uint8_t;
typedef __s16 int16_t;
typedef __u16 uint16_t;
typedef __s32 int32_t;
typedef __u32 uint32_t;
typedef __s64 int64_t;
typedef __u64 uint64_t;
typedef unsigned long size_t;

#ifndef __cplusplus
typedef _Bool bool;
#define true 1
#define false 0
#endif
#define NULL ((void *)0)

/* Map types and flags: include/uapi/linux/bpf.h, enum bpf_map_type and following. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_F_INNER_MAP = 1 << 12,
};
enum {
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live; /* threads that have not begun to exit */
};

struct super_block {
	uint32_t s_dev;
	unsigned long s_magic;
};

struct inode {
	uint16_t i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
};

struct vfsmount {
	struct dentry *mnt_root;
};

/* fs/mount.h */
struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	uint32_t f_mode;
	struct path f_path;
	struct inode *f_inode;
	void *private_data; /* of a socket: struct socket */
};

struct in6_addr {
	union {
		uint8_t u6_addr8[16];
	} in6_u;
};

struct sock_common {
	uint32_t skc_daddr;
	uint16_t skc_dport;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
};

struct sock {
	struct sock_common __sk_common;
};

struct socket {
	short type;
	struct sock *sk;
};

struct sockaddr_un {
	uint16_t sun_family;
	char sun_path[108];
};

struct unix_address {
	int len;
	struct sockaddr_un name[0];
};

struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
};

/* File of an overlay's lower or upper layer, opened behind the overlay's own inode (v6.6). */
struct backing_file {
	struct file file;
	struct path user_path;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct vm_userfaultfd_ctx {
	void *ctx; /* NULL: none */
};

struct vm_unmapped_area_info {
	unsigned long length;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
	struct vm_userfaultfd_ctx vm_userfaultfd_ctx;
};

struct mm_struct {
	unsigned long start_stack; /* of the main thread: where its arguments begin */
};

struct mm_struct___arch {
	struct {
		void *vdso;
	} context;
};

/* Before v6.1 (763ecb035029 "mm: remove the vma linked list"). */
struct vm_area_struct___list {
	struct vm_area_struct *vm_next;
};

struct mm_struct___list {
	struct vm_area_struct *mmap;
};

/* Before v6.1 (524e00b36e8c "mm: remove rb tree."). */
struct rb_node {
	struct rb_node *rb_right;
	struct rb_node *rb_left;
};

struct vm_area_struct___rb {
	struct rb_node vm_rb;
};

struct mm_struct___rb {
	struct {
		struct rb_node *rb_node;
	} mm_rb;
};

/* Since v6.1 (d4af56c5c7c6 "mm: start tracking VMAs with maple tree"). */
struct maple_tree {
	void *ma_root;
};

struct mm_struct___tree {
	struct maple_tree mm_mt;
};

struct maple_range_64 {
	unsigned long pivot[15];
	void *slot[16];
};

struct maple_arange_64 {
	unsigned long pivot[9];
	void *slot[10];
};

enum maple_type {
	maple_dense,
	maple_leaf_64,
	maple_range_64,
	maple_arange_64,
};

struct sched_info {
	unsigned long long
		run_delay; /* ns on run queues since the thread began, when the last wait ended */
	unsigned long long last_arrival; /* on a CPU, by the scheduler's clock */
	unsigned long long last_queued;	 /* likewise; 0 = it waits for none */
};

/* The run queue of a CPU. */
struct rq {
	uint64_t clock;	     /* the scheduler's, ns, as of the last switch or tick */
	uint64_t clock_task; /* likewise, but stands still in interrupts and while a hypervisor has
				taken the CPU */
};

struct cfs_rq {
	struct rq *rq; /* with CONFIG_FAIR_GROUP_SCHED */
};

struct sched_entity {
	uint64_t sum_exec_runtime; /* ns, as of the last switch or tick */
	uint64_t prev_sum_exec_runtime; /* when it came onto its CPU, or its scheduling was changed
					   there */
	struct cfs_rq *cfs_rq; /* with CONFIG_FAIR_GROUP_SCHED */
};

struct gendisk {
	char disk_name[32];
};

struct request_queue {
	struct gendisk *disk; /* since v5.15 */
};

/* A request to a block device, include/linux/blk-mq.h. */
struct request {
	struct request_queue *q;
	unsigned int __data_len; /* bytes that are still to be done */
	uint64_t start_time_ns;	 /* CLOCK_MONOTONIC; 0 = not noted */
};

/* Before v5.17 (f3fa33acca9f "block: remove the ->rq_disk field in struct request"). */
struct request___disk {
	struct gendisk *rq_disk;
};

/* How an interrupted wait goes on, include/linux/restart_block.h. */
struct restart_block {
	union {
		struct {
			uint32_t *uaddr;
			uint32_t val;
		} futex;
	};
};

/* kernel/events/uprobes.c: a call that is probed where it returns. */
struct return_instance {
	unsigned long stack; /* where its return address was */
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
};

struct uprobe_task {
	struct return_instance *return_instances;
};

struct thread_struct {
	unsigned long fsbase; /* where the thread finds its thread-local storage: x86-64 */
	struct {
		unsigned long tp_value;
	} uw; /* arm64 */
};

/* Numbers are unsigned wherever no negative one is looked for: libbpf makes unsigned loads as wide
 * as the kernel's field is (on_cpu has 1 byte since v7.2, and had 4). It refuses signed ones. */
struct task_struct {
	unsigned int __state;
	unsigned int on_cpu;
	unsigned long nvcsw; /* how often it was blocked */
	void *stack;
	unsigned int flags;
	struct sched_entity se;
	struct sched_info sched_info;
	struct mm_struct *mm;
	unsigned int pid;
	unsigned int tgid;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	unsigned int in_iowait : 1;
	unsigned int in_execve : 1;
	unsigned int frozen : 1; /* by its cgroup */
	uint64_t start_time; /* CLOCK_MONOTONIC, ns */
	uint64_t start_boottime;
	uint64_t self_exec_id;
	char comm[16];
	struct files_struct *files;
	struct signal_struct *signal;
	struct restart_block restart_block;
	struct uprobe_task *utask;
	struct thread_struct thread;
};

/* Before v5.14 (2f064a59a11f "sched: Change task_struct::state"). */
struct task_struct___pre514 {
	long state;
};

struct perf_event_attr {
	uint64_t config;
};

struct perf_event {
	int cpu; /* -1: of a thread */
	struct perf_event_attr attr;
};

struct io_cqe {
	uint64_t user_data;
	int32_t res;
};

struct io_ring_ctx;

/* A request of io_uring as its completion reports it (since v5.19 with what came of it,
 * cef216fc32d7 "io_uring: explicitly keep a CQE in io_kiocb"). Its first bytes are what its
 * operation makes of them. */
struct io_kiocb {
	struct file *file;
	uint8_t opcode;
	struct io_cqe cqe;
	struct io_ring_ctx *ctx;
	void *async_data;
};

/* io_uring/net.c: what requests that send and receive make of them. */
struct io_sr_msg {
	void *umsg;
	uint16_t flags;
};

/* io_uring/net.h: what is kept of a message's header, once a request has waited (from 6.10 on
 * always). */
struct io_async_msghdr {
	int namelen;
	uint64_t controllen;
};

/* The true context of a program at a perf event, include/linux/perf_event.h. */
struct bpf_perf_event_data_kern {
	struct perf_event *event;
};

struct bpf_map {
	uint32_t id;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	uint64_t session_id;
	uint64_t seq_num;
};

/* Context of programs that visit every thread, kernel/bpf/task_iter.c. */
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

struct linux_binprm;

/* include/uapi/linux/io_uring.h */
struct io_uring_cqe {
	uint64_t user_data;
	int32_t res;
	uint32_t flags;
};

/* include/uapi/linux/aio_abi.h, struct io_event and the beginning of struct iocb */
struct aio_event {
	uint64_t data, request;
	int64_t moved, more;
};

struct aio_request {
	uint64_t data;
	uint32_t key, flags;
	uint16_t code;
	int16_t priority;
	uint32_t descriptor;
	uint64_t buffer, bytes;
};

/* include/linux/socket.h, struct user_msghdr: the header of a message as programs write it */
struct message_header {
	uint64_t name;
	int32_t name_bytes;
	uint64_t parts, part_count, control, control_bytes;
};

/* include/uapi/linux/bpf.h: found in maps by its name */
struct bpf_task_work {
	uint64_t opaque;
} __attribute__((aligned(8)));

/* include/linux/sched.h */
#define PF_EXITING     0x00000004
#define PF_IO_WORKER   0x00000010
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD     0x00200000

/* include/linux/mm.h, include/linux/fs.h */
/* include/uapi/linux/stat.h */
#define S_IFMT	 0170000
#define S_IFSOCK 0140000
#define S_IFREG	 0100000
#define S_IFBLK	 0060000
#define S_IFDIR	 0040000
#define S_IFIFO	 0010000

#define VM_EXEC	      0x00000004
#define FMODE_BACKING (1u << 24 | 1u << 25) /* either, see young.bpf.h */

/* include/linux/socket.h */
#define AF_UNIX	 1
#define AF_INET	 2
#define AF_INET6 10

/* include/uapi/linux/magic.h */
#define OVERLAYFS_SUPER_MAGIC 0x794c7630
#define FUSE_SUPER_MAGIC      0x65735546
#define TMPFS_MAGIC	      0x01021994

/* include/uapi/linux/perf_event.h */
#define PERF_COUNT_SW_PAGE_FAULTS_MIN 5
#define PERF_COUNT_SW_PAGE_FAULTS_MAJ 6

#define PAGE_SHIFT 12
#define PAGE_BYTES (1u << PAGE_SHIFT)

#endif
