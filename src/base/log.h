/* Logging for mains: levels, one line a record, never secrets. Libraries return errors instead. */
#pragma once

enum cg_log_level { CG_LOG_ERROR, CG_LOG_WARN, CG_LOG_INFO, CG_LOG_DEBUG };

struct cg_log {
        int fd;
        int level;
        const char *who; /* the process's role */
};

/*
 * Writes "2026-11-21T03:10:00.123Z warn supervisor: TEXT\n" in one write. Control characters in
 * TEXT become \xNN, so that no record can pretend to be two. Records over 4 kB are cut and say so.
 * A log that cannot be written is ignored.
 */
void cg_log(const struct cg_log *log, enum cg_log_level level, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
