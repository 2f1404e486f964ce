/*
 * Detects that nothing in a sandbox can act any more, although its main process has not ended yet:
 * most of the time that a process with much memory takes to end is spent on its page tables. Init.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/*
 * True if the main process is the only one beside init, has given up its memory in every thread (so
 * that it runs no code, and nothing is written to shared mappings for it, such as robust futexes),
 * and has closed its files but for three, which releases their locks. The filter denies I/O that
 * would outlast this. False if one of these is not so, or not known; then the caller waits for the
 * end of the process. To be called when all processes with the main process's system call filter
 * are exiting (POLLHUP of its listener): they start no others.
 */
bool cg_stopped_check(pid_t main_pid);
