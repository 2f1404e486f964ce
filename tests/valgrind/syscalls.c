/*
 * Preloaded into programs that run under valgrind (scripts/run_tests.py); never installed, never
 * part of cellgate. A system call that valgrind does not know fails under it with ENOSYS, and
 * cellgate holds every child by a pidfd: Debian 12's valgrind (3.19) knows none of their calls,
 * 3.24 still lacks pidfd_send_signal; nor does 3.19 know openat2. Here these are made on the real
 * processor, unseen by valgrind. They write no memory, and openat2 alone reads any; descriptors are
 * counted in /proc.
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <valgrind/valgrind.h>

static long enter(long n, const long *a)
{
        register long a4 __asm__("r10") = a[3];
        register long a5 __asm__("r8") = a[4];
        register long a6 __asm__("r9") = a[5];
        long r;

        __asm__ volatile("syscall"
                         : "=a"(r)
                         : "a"(n), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(a4), "r"(a5), "r"(a6)
                         : "rcx", "r11", "memory");
        return r;
}

/*
 * Runs on the real processor and on valgrind's own stack, without libc's thread data: nothing but
 * the call may happen here.
 */
static long enter_natively(unsigned thread, long n, const long *a)
{
        (void)thread;
        return enter(n, a);
}

/* Takes the place of libc's. */
long syscall(long n, ...)
{
        long a[6], r;
        va_list ap;

        va_start(ap, n);
        for (int i = 0; i < 6; i++)
                a[i] = va_arg(ap,
                              /*
                               * as libc does: those that the caller did not give are not looked at
                               */
                              long);
        va_end(ap);
        if ((n == SYS_pidfd_open || n == SYS_pidfd_send_signal || n == SYS_openat2) && RUNNING_ON_VALGRIND)
                r = (long)VALGRIND_NON_SIMD_CALL2(enter_natively, n, a);
        else
                r = enter(n, a);
        if (r < 0 && r >= -4095) {
                errno = (int)-r;
                return -1;
        }
        return r;
}
