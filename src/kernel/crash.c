/*
 * faulthandler writes all frames, a dozen of which are IPython's and ours. It writes them to a
 * memory file, and the crash handler (io.c), which runs next, copies the others to standard error.
 * A cell that calls faulthandler.enable() itself gets all of them.
 */
#include "kernel/crash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "config.h"

/* Of a dump: a hundred frames of a hundred threads, with long paths. The rest is left out. */
#define DUMP_MAX ((size_t)256 << 10)

#ifndef __SANITIZE_ADDRESS__
/* A number that no file of a cell gets, also in a forked process that has closed all of them. */
#define LEAST_FD 900

/* A signal handler is given no argument. Set before the handlers are. */
static int dump_fd = -1;
static struct stat dump_file;

int cg_crash_fd(void)
{
        int fd, high;

        if (dump_fd >= 0)
                return dump_fd;
        fd = memfd_create("cellgate-crash", MFD_CLOEXEC);
        if (fd < 0 || fstat(fd, &dump_file) < 0) {
                if (fd >= 0)
                        close(fd);
                return 2;
        }
        high = fcntl(fd, F_DUPFD_CLOEXEC, LEAST_FD);
        if (high >= 0)
                close(fd);
        dump_fd = high < 0 ? fd : high; /* the limit of open files may be lower */
        return dump_fd;
}

/* A forked process may have closed it and opened a file of its own in its place. */
static bool is_ours(void)
{
        struct stat st;

        return dump_fd >= 0 && fstat(dump_fd, &st) == 0 && st.st_dev == dump_file.st_dev &&
               st.st_ino == dump_file.st_ino;
}

static bool begins(const char *line, const char *end, const char *with)
{
        size_t len = strlen(with);

        return (size_t)(end - line) >= len && memcmp(line, with, len) == 0;
}

/* Whether a line of the dump is a frame of what runs the cells. */
static bool is_internal(const char *line, const char *end)
{
        static const char shell[] = "/IPython/core/interactiveshell.py\"";

        if (begins(line, end, "  File \"" CG_PYTHONDIR "/"))
                return true;
        return begins(line, end, "  File \"") && memmem(line, (size_t)(end - line), shell, sizeof(shell) - 1);
}

static void write_out(const char *p, size_t len)
{
        while (len) {
                ssize_t n = write(2, p, len);

                if (n < 0 && errno != EINTR)
                        return;
                p += n > 0 ? n : 0;
                len -= n > 0 ? (size_t)n : 0;
        }
}

void cg_crash_show(void)
{
        static char dump[DUMP_MAX];
        ssize_t n = is_ours() ? pread(dump_fd, dump, sizeof(dump), 0) : 0;
        const char *end = dump + (n > 0 ? n : 0);

        for (const char *line = dump, *next; line < end; line = next) {
                next = memchr(line, '\n', (size_t)(end - line));
                next = next ? next + 1 : end;
                if (!is_internal(line, next))
                        write_out(line, (size_t)(next - line));
        }
        /* A forked process shares the file with its parent, which may crash as well. */
        if (n > 0 && ftruncate(dump_fd, 0) == 0)
                lseek(dump_fd, 0, SEEK_SET);
}
#else /* its own handlers take the place of ours */
int cg_crash_fd(void)
{
        return 2;
}

void cg_crash_show(void)
{
}
#endif
