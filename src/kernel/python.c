/* Calls into the package cellgate_kernel. Zygote and kernel process. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel/python.h"

#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include "kernel/io.h"
#include "kernel/module.h"

/* ------------------------------------------------------------------ errors */

int cg_py_fail(struct cg_err *err, const char *what)
{
        PyObject *type, *value, *tb, *text = NULL;
        const char *s = NULL, *name;

        PyErr_Fetch(&type, &value, &tb);
        PyErr_NormalizeException(&type, &value, &tb);
        if (value)
                text = PyObject_Str(value);
        if (text)
                s = PyUnicode_AsUTF8(text);
        name = type ? ((PyTypeObject *)type)->tp_name : "?";
        cg_fail(err, CG_E_STATE, "%s: %s: %s", what, name, s ?: "?");
        Py_XDECREF(text);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(tb);
        PyErr_Clear();
        return CG_E_STATE;
}

/* ------------------------------------------------------------------ calls */

/* Calls cellgate_kernel.MODULE.FUNCTION(text or None). New reference, or NULL with *err filled. */
static PyObject *call(const char *module, const char *function, const char *text, Py_ssize_t len,
                      struct cg_err *err)
{
        PyObject *m = PyImport_ImportModule(module), *ret = NULL;

        if (m && text)
                ret = PyObject_CallMethod(m, function, "s#", text, len);
        else if (m)
                ret = PyObject_CallMethod(m, function, NULL);
        Py_XDECREF(m);
        if (!ret)
                cg_py_fail(err, module);
        return ret;
}

/* call() without its result. */
static int run(const char *module, const char *function, const char *text, Py_ssize_t len, struct cg_err *err)
{
        PyObject *r = call(module, function, text, len, err);

        Py_XDECREF(r);
        return r ? 0 : CG_E_STATE;
}

int cg_py_check_path(struct cg_err *err)
{
        return run("cellgate_kernel.paths", "check", NULL, 0, err);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !__GLIBC_PREREQ(2, 33)
static void fill_gaps(void)
{
}
#else
/* Python's pools begin at multiples of this, with a header; older ones at those of a quarter. */
#define POOL_SIZE   (16u << 10)
#define POOL_HEADER 48
/* The largest blocks of pools, and of the heap that are looked for. */
#define POOL_BLOCK  512
#define HEAP_BLOCK  (64u << 10)
/* Bytes for each size of blocks: a Python with other pools would never stop. */
#define GAPS_MAX    (256u << 10)

/*
 * Allocates the free blocks between others, for good. The zygote and the kernels then write what
 * they allocate to pages of their own, and not here and there to those that they share.
 */
static void fill_gaps(void)
{
        struct mallinfo2 info;
        const char *top;

        for (size_t size = 16; size <= POOL_BLOCK; size += 16) {
                for (size_t n = 0; n < GAPS_MAX; n += size) {
                        void *p = PyObject_Malloc(size);

                        if (p && (uintptr_t)p % POOL_SIZE != POOL_HEADER)
                                continue;
                        PyObject_Free(p); /* of an empty pool */
                        break;
                }
        }
        malloc_trim(0);
        info = mallinfo2();
        top = (const char *)sbrk(0) - info.keepcost;
        for (size_t size = HEAP_BLOCK; size; size = size > 1024 ? size / 2 : size - 16) {
                for (size_t n = 0; n < GAPS_MAX; n += size) {
                        char *p = malloc(size);

                        if (p && p < top)
                                continue;
                        free(p);
                        break;
                }
        }
}
#endif

int cg_py_prepare(const char *preload, struct cg_py_versions *ret, struct cg_err *err)
{
        const char *list = preload ?: "", *python, *ipython;
        PyObject *checked, *versions;
        int r = 0;

        PyGC_Disable(); /* imports make no garbage; kernels enable it */
        checked = call("cellgate_kernel.environment", "check", NULL, 0, err);
        Py_XDECREF(checked);
        versions = checked ? call("cellgate_kernel.zygote", "prepare", list, (Py_ssize_t)strlen(list), err)
                           : NULL;
        if (!versions)
                return CG_E_STATE;
        if (PyArg_ParseTuple(versions, "ss", &python, &ipython)) {
                snprintf(ret->python, sizeof(ret->python), "%s", python);
                snprintf(ret->ipython, sizeof(ret->ipython), "%s", ipython);
        } else {
                r = cg_py_fail(err, "cellgate_kernel.zygote.prepare");
        }
        fill_gaps();
        Py_DECREF(versions);
        return r;
}

static int step(const char *function, struct cg_err *err)
{
        PyObject *more = call("cellgate_kernel.zygote", function, NULL, 0, err);
        int r = more ? more == Py_True : CG_E_STATE;

        Py_XDECREF(more);
        if (r == 0)
                fill_gaps();
        return r;
}

int cg_py_warm_up(struct cg_err *err)
{
        return step("warm_up", err);
}

int cg_py_prepare_completion(struct cg_err *err)
{
        return step("prepare_completion", err);
}

int cg_py_plan_completion(struct cg_err *err)
{
        return run("cellgate_kernel.zygote", "plan_completion", NULL, 0, err);
}

/* Python has no context for such a list. 1 MiB each, or 256 KiB in Python 3.9. */
static struct {
        PyObjectArenaAllocator python;
        struct {
                void *at;
                size_t size;
        } v[1024];
        size_t n;
} arenas;

static void *arena_alloc(void *ctx, size_t size)
{
        void *p = arenas.python.alloc(ctx, size);

        if (p && arenas.n < CG_ARRAY_LEN(arenas.v)) {
                arenas.v[arenas.n].at = p;
                arenas.v[arenas.n++].size = size;
        }
        return p;
}

static void arena_free(void *ctx, void *p, size_t size)
{
        for (size_t i = 0; i < arenas.n; i++) {
                if (arenas.v[i].at == p) {
                        arenas.v[i] = arenas.v[--arenas.n];
                        break;
                }
        }
        arenas.python.free(ctx, p, size);
}

void cg_py_track_arenas(void)
{
        PyObjectArenaAllocator a;

        PyObject_GetArenaAllocator(&arenas.python);
        a = (PyObjectArenaAllocator){ arenas.python.ctx, arena_alloc, arena_free };
        PyObject_SetArenaAllocator(&a);
}

/*
 * Frees the data of libpython, which is at @base. Not where Python is a part of the program, of
 * which init uses other data.
 */
static int free_data(struct dl_phdr_info *object, size_t size, void *base)
{
        uintptr_t page = (uintptr_t)getpagesize();

        if (object->dlpi_addr != (uintptr_t)base || !object->dlpi_name[0])
                return 0;
        for (size_t i = 0; i < object->dlpi_phnum; i++) {
                const ElfW(Phdr) *h = &object->dlpi_phdr[i];
                uintptr_t at = ((uintptr_t)base + h->p_vaddr) & ~(page - 1);

                if (h->p_type == PT_LOAD && h->p_flags & PF_W)
                        madvise((void *)at, (uintptr_t)base + h->p_vaddr + h->p_memsz - at, MADV_DONTNEED);
        }
        return 0;
}

void cg_py_free_in_init(void)
{
        Dl_info python;

        while (arenas.n) {
                arenas.n--;
                munmap(arenas.v[arenas.n].at, arenas.v[arenas.n].size);
        }
        if (dladdr((const void *)(uintptr_t)PyObject_Malloc, &python))
                dl_iterate_phdr(free_data, python.dli_fbase);
}

#ifdef __SANITIZE_ADDRESS__
static PyMemAllocatorEx pools; /* Python's: what is not in a pool they pass on to PyMem_Raw*() */

static void *raw_malloc(void *ctx, size_t size)
{
        return PyMem_RawMalloc(size);
}

static void *raw_calloc(void *ctx, size_t n, size_t size)
{
        return PyMem_RawCalloc(n, size);
}

static void *pools_realloc(void *ctx, void *p, size_t size)
{
        return p ? pools.realloc(ctx, p, size) : PyMem_RawMalloc(size);
}

/*
 * AddressSanitizer detects no errors inside of Python's memory pools. From the first fork on, the
 * zygote and the kernels allocate with malloc(); imports before it use the pools, since a kernel
 * starts in a quarter less time with them.
 */
static void leave_pools(void)
{
        PyMemAllocatorEx a;

        if (pools.free)
                return;
        PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &pools);
        a = (PyMemAllocatorEx){ pools.ctx, raw_malloc, raw_calloc, pools_realloc, pools.free };
        PyMem_SetAllocator(PYMEM_DOMAIN_OBJ, &a);
        PyMem_SetAllocator(PYMEM_DOMAIN_MEM, &a);
}
#endif

void cg_py_before_fork(void)
{
#ifdef __SANITIZE_ADDRESS__
        leave_pools();
#endif
        PyOS_BeforeFork();
}

void cg_py_after_fork_parent(void)
{
        PyOS_AfterFork_Parent();
}

void cg_py_after_fork_child(void)
{
        PyOS_AfterFork_Child();
}

int cg_py_make_kernel(const char *config, size_t len, struct cg_err *err)
{
        return run("cellgate_kernel.kernel", "make", config, (Py_ssize_t)len, err);
}

int cg_py_configure(struct cg_err *err)
{
        return run("cellgate_kernel.kernel", "configure", NULL, 0, err);
}

int cg_py_serve(struct cg_io *io, const struct cg_sandbox *plan, struct cg_err *err)
{
        PyObject *m = PyImport_ImportModule("_cellgate");

        if (!m)
                return cg_py_fail(err, "_cellgate");
        cg_py_module_attach(m, io, plan);
        cg_io_set_control(io, cg_py_module_control, m); /* the control thread keeps @m */
        return run("cellgate_kernel.kernel", "serve", NULL, 0, err);
}

/* A pending call of run_handlers() waits: one is enough for all attempts. */
static atomic_bool handlers_queued;

/* A pending call: runs in the main thread. */
static int run_handlers(void *io)
{
        atomic_store(&handlers_queued, false);
        if (cg_io_forked(io))
                return 0;
        if (!cg_io_interrupt_arrived(io))
                PyErr_SetInterruptEx(SIGINT);
        return PyErr_CheckSignals();
}

void cg_py_interrupt(struct cg_io *io, bool again)
{
        if (again)
                PyErr_SetInterruptEx(SIGINT);
        /* Fails where too many calls of others wait; the next attempt tries again. */
        if (!atomic_exchange(&handlers_queued, true) && Py_AddPendingCall(run_handlers, io) < 0)
                atomic_store(&handlers_queued, false);
}
