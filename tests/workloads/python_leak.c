// SPDX-License-Identifier: Apache-2.0
/* An extension of CPython: leak(n) loses n blocks and returns how many it lost in all, churn(n)
 * allocates and frees as many. */
#include <Python.h>

#define LEAK_BYTES 200

static long long lost;
void *volatile leaked;

__attribute__((noinline)) static void leak_one(void)
{
	leaked = malloc(LEAK_BYTES);
	lost++;
}

__attribute__((noinline)) static void churn_one(void)
{
	leaked = malloc(300);
	free(leaked);
}

static PyObject *leak(PyObject *self, PyObject *count)
{
	for (long left = PyLong_AsLong(count); left > 0; left--)
		leak_one();
	return PyLong_FromLongLong(lost);
}

static PyObject *churn(PyObject *self, PyObject *count)
{
	for (long left = PyLong_AsLong(count); left > 0; left--)
		churn_one();
	Py_RETURN_NONE;
}

static PyMethodDef methods[] = { { "leak", leak, METH_O, "" },
				 { "churn", churn, METH_O, "" },
				 { 0 } };
static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, "python_leak", NULL, -1, methods };

PyMODINIT_FUNC PyInit_python_leak(void)
{
	return PyModule_Create(&module);
}
