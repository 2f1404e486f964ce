/*
 * File operations of the caller inside a sandbox: commands (commands.h) that are built in. They run
 * in a process of the sandbox, so they see and may do what its programs see and may do.
 *
 *      read PATH OFFSET LENGTH    copies a regular file to the output; LENGTH -1: to its end
 *      write PATH MODE            replaces a file, atomically; MODE (octal): of a new one. The
 *                                 input is a socket with pieces of data, each after its length
 *                                 (uint64_t of this machine), and a length of 0
 *      stat PATH                  a JSON object: see add_entry()
 *      list PATH                  a JSON array of such objects with "name", at most CG_FILES_LIST_MAX
 *      mkdir PATH MODE            with missing parents; an existing folder is no error
 *      remove PATH                a file, a link, or a folder with all that it contains, at most
 *                                 CG_FILES_DEPTH folders deep. Nothing is removed of the working
 *                                 folder, folders above it, and mount points
 *      rename FROM TO
 *      changed TIME               a JSON object: files that were made or changed since TIME (ns
 *                                 since 1970), at most CG_FILES_CHANGED_MAX bytes
 *
 * No operation waits for a FIFO or a device. Paths are absolute, or below the working folder. Names
 * and targets that are not UTF-8 are hexadecimal, as "name_hex" and "target_hex". The exit status is
 * 0, or the errno; then the error output says what failed.
 */
#pragma once

#define CG_FILES_LIST_MAX 200000
#define CG_FILES_DEPTH    512
/* Limits of `changed`, so that it fits into a RESULT. */
#define CG_FILES_CHANGED_MAX (256u << 10)

struct cg_sandbox;

/* @argv: NULL-terminated. Return: the exit status. */
int cg_files_run(const struct cg_sandbox *sb, char *const *argv);
