/*
 * Removes the frames of IPython and cellgate, and the list of extension modules, from tracebacks of
 * crashes. faulthandler writes to a memory file, and the crash handler (io.c), which runs next,
 * copies the rest to standard error. A cell that calls faulthandler.enable() itself gets all.
 */
#include "kernel/crash.h"

#include <sys/mman.h>

#include "base/util.h"
#include "config.h"

/* Most bytes of a dump: a hundred frames of a hundred threads, with long paths. */
#define DUMP_MAX ((size_t)256 << 10)

#ifndef __SANITIZE_ADDRESS__
/* Higher than descriptors of cells, also in a forked process that has closed all others. */
#define LEAST_FD 900

/* Global because signal handlers have no argument. Set before the handlers. */
static int dump_fd = -1;
static struct stat dump_file;

int cg_crash_fd(void)
{
        int fd, high;

        if (dump_fd >= 0)
                return dump_fd;
        fd = memfd_create("cellgate-crash", MFD_CLOEXEC);
        if (fd < 0 || fstat(fd, &dump_file) < 0) {
                cg_closep_(&fd);
                return 2;
        }
        high = fcntl(fd, F_DUPFD_CLOEXEC, LEAST_FD);
        if (high >= 0)
                close(fd);
        dump_fd = high < 0 ? fd : high; /* high < 0: the limit of open files is lower */
        return dump_fd;
}

static bool begins(const char *line, const char *end, const char *with)
{
        size_t len = strlen(with);

        return (size_t)(end - line) >= len && memcmp(line, with, len) == 0;
}

/*
 * Is this line of the dump a frame of the code that runs cells, or the list of extension modules
 * that ends it (with the empty line before it)?
 */
static bool is_left_out(const char *line, const char *end, const char *dump_end)
{
        static const char shell[] = "/IPython/core/interactiveshell.py\"";
        const char *ours = CG_WHEEL ? "/_cellgate_kernel/cellgate_" : "/cellgate/python/cellgate_";
        static const char modules[] = "Extension modules: ";
        size_t len = (size_t)(end - line);

        if (begins(line, end, modules) || (len == 1 && begins(end, dump_end, modules)))
                return true;
        return begins(line, end, "  File \"") &&
               (memmem(line, len, ours, strlen(ours)) || memmem(line, len, shell, sizeof(shell) - 1));
}

static void write_out(const char *p, size_t len)
{
        while (len) {
                ssize_t n = write(2, p, len);

                if (n < 0 && errno != EINTR)
                        return;
                p += CG_MAX(n, 0);
                len -= CG_MAX(n, 0);
        }
}

void cg_crash_show(void)
{
        static char dump[DUMP_MAX];
        const char *end = dump;
        struct stat st;
        ssize_t n = 0;

        /* A forked process may have closed the descriptor and reused its number. */
        if (dump_fd >= 0 && fstat(dump_fd, &st) == 0 && st.st_dev == dump_file.st_dev &&
            st.st_ino == dump_file.st_ino)
                n = pread(dump_fd, dump, sizeof(dump), 0);
        if (n > 0)
                end += n;
        for (const char *line = dump, *next; line < end; line = next) {
                next = memchr(line, '\n', (size_t)(end - line));
                next = next ? next + 1 : end;
                if (!is_left_out(line, next, end))
                        write_out(line, (size_t)(next - line));
        }
        /* A forked process shares the file with its parent, which may crash as well. */
        if (n > 0 && ftruncate(dump_fd, 0) == 0)
                lseek(dump_fd, 0, SEEK_SET);
}
#else /* the sanitizer has its own handlers */
int cg_crash_fd(void)
{
        return 2;
}

void cg_crash_show(void)
{
}
#endif
