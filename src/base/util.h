/*
 * Cleanup attributes, moves, checked sums, errors; and the headers of the C library that most files
 * need, which no file repeats that includes this one, itself or by another header.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include "base/err.h"

#define CG_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CG_CLEANUP(f)   __attribute__((cleanup(f)))

/*
 * A large local variable of a function that is called often, which sets what it reads: without the
 * zeros of -ftrivial-auto-var-init.
 */
#if defined(__has_attribute) && __has_attribute(uninitialized)
#define CG_UNINITIALIZED __attribute__((uninitialized))
#else
#define CG_UNINITIALIZED
#endif

/* The smaller and the larger of @a and @b, each evaluated once. */
#define CG_MIN(a, b) \
        __extension__({ \
                __typeof__(1 ? (a) : (b)) cg_a_ = (a), cg_b_ = (b); \
                cg_a_ < cg_b_ ? cg_a_ : cg_b_; \
        })
#define CG_MAX(a, b) \
        __extension__({ \
                __typeof__(1 ? (a) : (b)) cg_c_ = (a), cg_d_ = (b); \
                cg_c_ > cg_d_ ? cg_c_ : cg_d_; \
        })

/* @text, or @other where it is NULL or empty. */
static inline const char *cg_text_or(const char *text, const char *other)
{
        return text && *text ? text : other;
}

/* @separator where elements of a list precede. */
static inline const char *cg_sep(bool precede, const char *separator)
{
        return precede ? separator : "";
}

static inline const char *cg_bool_text(bool value)
{
        return value ? "true" : "false";
}

/* strlen() and strdup() of a text that may be NULL. */
static inline size_t cg_strlen(const char *s)
{
        return s ? strlen(s) : 0;
}

static inline char *cg_strdup(const char *s)
{
        return s ? strdup(s) : NULL;
}

/* NULL for a text of length 0. */
static inline const char *cg_or_null(const char *s)
{
        return *s ? s : NULL;
}

/* Hands a pointer on and leaves NULL behind, so that a cleanup attribute does not free it. */
#define CG_STEAL(p) \
        __extension__({ \
                __typeof__(p) *cg_p_ = &(p); \
                __typeof__(p) cg_v_ = *cg_p_; \
                *cg_p_ = NULL; \
                cg_v_; \
        })

/* The same for a struct that a function returns by value: zeros stay behind. */
#define CG_TAKE(s) \
        __extension__({ \
                __typeof__(s) *cg_p_ = &(s); \
                __typeof__(s) cg_v_ = *cg_p_; \
                *cg_p_ = (__typeof__(s)){ 0 }; \
                cg_v_; \
        })

/* Defines a function for a cleanup attribute: @name frees a @type by @free_fn. */
#define CG_FREEP(name, type, free_fn) \
        static inline void name(type *p) \
        { \
                free_fn(*p); \
        }

static inline void cg_freep_(void *p)
{
        free(*(void **)p);
}
#define cg_auto_free CG_CLEANUP(cg_freep_)

/* Frees a list of strings that NULL ends. */
static inline void cg_free_list(char **list)
{
        for (size_t i = 0; list && list[i]; i++)
                free(list[i]);
        free(list);
}

static inline void cg_freelistp_(char ***list)
{
        cg_free_list(*list);
}
#define cg_auto_list CG_CLEANUP(cg_freelistp_)

static inline void cg_closep_(int *fd)
{
        if (*fd >= 0)
                close(*fd);
        *fd = -1;
}
#define cg_auto_fd CG_CLEANUP(cg_closep_)

static inline void cg_closedirp_(DIR **dir)
{
        if (*dir)
                closedir(*dir);
}
#define cg_auto_dir CG_CLEANUP(cg_closedirp_)

/* The folder @fd (takes, also when this fails). NULL: errno, that of @fd where it is negative. */
static inline DIR *cg_dir_of(int fd)
{
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        int e = errno;

        if (!dir && fd >= 0)
                close(fd);
        errno = e;
        return dir;
}

static inline int cg_steal_fd(int *fd)
{
        int v = *fd;

        *fd = -1;
        return v;
}

/* Takes @item out of the list at @head, which is linked by @link. */
#define CG_UNLINK(head, item, link) \
        do { \
                __typeof__(&(head)) cg_at_ = &(head); \
                while (*cg_at_ && *cg_at_ != (item)) \
                        cg_at_ = &(*cg_at_)->link; \
                if (*cg_at_) \
                        *cg_at_ = (*cg_at_)->link; \
        } while (0)

/* false on overflow */
static inline bool cg_size_add(size_t a, size_t b, size_t *ret)
{
        return !__builtin_add_overflow(a, b, ret);
}

/*
 * FNV-1a, continued from @hash: CG_FNV1A for the first piece. Whoever chooses the data can make two
 * pieces with one hash.
 */
#define CG_FNV1A UINT64_C(0xcbf29ce484222325)
static inline uint64_t cg_fnv1a(uint64_t hash, const void *data, size_t len)
{
        for (size_t i = 0; i < len; i++)
                hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
        return hash;
}

/* errno if the call of that @result failed, else 0. */
static inline int cg_error_of(long result)
{
        return result < 0 ? errno : 0;
}

/* @list with room for one more than its @n elements of @size bytes. NULL: no memory, unchanged. */
static inline void *cg_grow(void *list, size_t *cap, size_t n, size_t size)
{
        size_t more = *cap ? *cap * 2 : 32;

        if (n < *cap)
                return list;
        list = realloc(list, more * size);
        if (list)
                *cap = more;
        return list;
}

/* The same for the list variable @v. False: out of memory. */
#define CG_GROW(v, n, cap) \
        __extension__({ \
                __typeof__(v) cg_list_ = cg_grow((v), &(cap), (n), sizeof(*(v))); \
                if (cg_list_) \
                        (v) = cg_list_; \
                cg_list_ != NULL; \
        })

/* Convert the result @r of a system call: @r, or -errno. */
static inline int cg_result(long r)
{
        return r < 0 ? -errno : (int)r;
}

/* CLOCK_MONOTONIC in milliseconds. */
int64_t cg_now_ms(void);
/* Waits between two attempts of something that no event reports. A signal may end the wait. */
void cg_pause_ms(int ms);

/*
 * A limit for work of this thread that depends on files of others: processor time, so that a busy
 * machine does not reach it, and a longer time of the clock, for disks that do not answer.
 */
struct cg_budget {
        int64_t cpu_end_ms, end_ms;
};

struct cg_budget cg_budget_start(int64_t cpu_ms, int64_t clock_ms);
bool cg_budget_is_spent(const struct cg_budget *b);
