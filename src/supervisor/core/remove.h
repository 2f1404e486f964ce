/* Removes folders while the event loop goes on. */
#pragma once

struct sup;

/*
 * Removes the folder @path (absent is fine) in a thread; the supervisor's end waits for it. @path
 * must never be used again.
 */
void cg_sup_remove(struct sup *s, const char *path);
