/* Tracebacks of crashes, without the frames of the code that runs cells. Kernel process. */
#pragma once

/* The descriptor for faulthandler: a memory file, or 2 if none can be made. It stays open. */
int cg_crash_fd(void);

/* Copies the filtered traceback to descriptor 2. Async-signal-safe. */
void cg_crash_show(void);
