/*
 * The traceback of a process that crashes, without the frames that run its cells. Kernel process.
 */
#ifndef CG_KERNEL_CRASH_H
#define CG_KERNEL_CRASH_H

/*
 * The descriptor that faulthandler is to write to: a memory file, or 2 where none can be made. It
 * stays open.
 */
int cg_crash_fd(void);

/*
 * Write to descriptor 2 what faulthandler has written. For signal handlers: async-signal-safe calls
 * only.
 */
void cg_crash_show(void);

#endif
