/* Landlock's rights, also those newer than the headers we build with. Private to src/sandbox. */
#pragma once

#include <linux/landlock.h>
#include <stdint.h>

#define CG_LL_EXECUTE    LANDLOCK_ACCESS_FS_EXECUTE
#define CG_LL_READ_FILE  LANDLOCK_ACCESS_FS_READ_FILE
#define CG_LL_READ_DIR   LANDLOCK_ACCESS_FS_READ_DIR
#define CG_LL_WRITE_FILE LANDLOCK_ACCESS_FS_WRITE_FILE
#define CG_LL_TRUNCATE   (1ULL << 14) /* ABI 3 */
#define CG_LL_IOCTL_DEV  (1ULL << 15) /* ABI 5 */

/* Changes of a file, and of names in a folder. */
#define CG_LL_ALTER_FILE (CG_LL_WRITE_FILE | CG_LL_TRUNCATE | CG_LL_IOCTL_DEV)
#define CG_LL_ALTER_DIR \
        (LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR | \
         LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK | \
         LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM | \
         LANDLOCK_ACCESS_FS_REFER)
/* All rights of a rule for something other than a folder. */
#define CG_LL_FILE (CG_LL_EXECUTE | CG_LL_READ_FILE | CG_LL_ALTER_FILE)

#define CG_LL_NET_BIND_TCP    (1ULL << 0) /* ABI 4 */
#define CG_LL_NET_CONNECT_TCP (1ULL << 1) /* ABI 4 */

#define CG_LL_SCOPE_ABSTRACT_UNIX (1ULL << 0) /* ABI 6 */
#define CG_LL_SCOPE_SIGNAL        (1ULL << 1) /* ABI 6 */

/* The kernel accepts a longer structure than it knows if the rest is zero. */
struct cg_ll_ruleset_attr {
        uint64_t handled_access_fs;
        uint64_t handled_access_net;
        uint64_t scoped;
};
