/* Output of file operations (files.h), which run in a process of the sandbox. */
#pragma once

#include <stdbool.h>

struct cg_buf;

/* Writes what failed to the error output. Return: the errno. */
int cg_files_failed(const char *what, const char *path);
/* "KEY":TEXT, or "KEY_hex": the bytes of a text that is not UTF-8. */
void cg_files_add_name(struct cg_buf *b, const char *key, const char *text);
/* Writes what was collected to the output, and empties @b. False: or an append has failed. */
bool cg_files_flush(struct cg_buf *b);
