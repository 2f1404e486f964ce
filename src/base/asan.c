/*
 * AddressSanitizer builds only: a process that gets SIGRTMAX writes how many bytes it has allocated
 * to its standard error. scripts/soak compares two such counts to find memory that is reachable but
 * never freed. Runs in every process.
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* From libasan; gcc has no header for it. */
size_t __sanitizer_get_current_allocated_bytes(void);

/* Linked into every program by -Wl,-u (meson.build). */
void cg_asan_report_live_bytes(int signo);

void cg_asan_report_live_bytes(int signo)
{
        char line[80];
        int n = snprintf(line, sizeof(line), "\ncellgate live bytes: process %d has %zu\n", (int)getpid(),
                         __sanitizer_get_current_allocated_bytes());

        /* One write, so that lines of processes do not mix. A failure shows as a missing line. */
        if (write(STDERR_FILENO, line, (size_t)n) < 0)
                return;
}

__attribute__((constructor)) static void install(void)
{
        struct sigaction sa = { .sa_handler = cg_asan_report_live_bytes, .sa_flags = SA_RESTART };

        sigaction(SIGRTMAX, &sa, NULL);
}
