/* A mutex that is held until the end of the block. */
#pragma once

#include <pthread.h>

static inline pthread_mutex_t *cg_hold_(pthread_mutex_t *m)
{
        pthread_mutex_lock(m);
        return m;
}

static inline void cg_release_(pthread_mutex_t **m)
{
        pthread_mutex_unlock(*m);
}

#define CG_HOLD(mutex) \
        __attribute__((unused, cleanup(cg_release_))) pthread_mutex_t *cg_held_ = cg_hold_(mutex)
