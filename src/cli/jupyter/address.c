/* `cellgate jupyter`: where the supervisor is that this user's notebooks share. */
#include "cli/jupyter/jupyter.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/installed.h"
#include "base/kernel_env.h"
#include "base/text.h"
#include "base/util.h"
#include "config.h"

#define PREFIX "jupyter-"

/*
 * The folder that private supervisors of this user use as well: its contents are hidden from all
 * kernels.
 */
static int runtime_dir(char *buf, size_t size, struct cg_err *err)
{
        return cg_runtime_parent("cellgate", buf, size, err);
}

/* In /tmp other users may have created the name. */
static int make_own_dir(const char *path, struct cg_err *err)
{
        if (cg_make_own_dir(path))
                return 0;
        return cg_fail(
                err, CG_E_STATE,
                "%s must be a folder of this user with mode 0700: another user may have made it. Set XDG_RUNTIME_DIR "
                "to a folder of your own",
                path);
}

static void add(struct sha256_ctx *h, const char *s)
{
        sha256_update(h, strlen(s) + 1, (const uint8_t *)s);
}

/* A replaced program changes the address: an old supervisor must not serve a new kernel. */
static void add_program(struct sha256_ctx *h, const char *path)
{
        char text[128];
        struct stat st;

        add(h, path);
        if (stat(path, &st) < 0)
                return;
        snprintf(text, sizeof(text), "%llu %lld.%09ld", (unsigned long long)st.st_ino,
                 (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
        add(h, text);
}

int cg_jup_address(const char *preload, const char *kernel_env, char *buf, size_t size, struct cg_err *err)
{
        struct sha256_ctx h;
        uint8_t digest[SHA256_DIGEST_SIZE];
        cg_auto_free char *state = NULL;
        char parent[128], hex[13], own[PATH_MAX], module[PATH_MAX];

        if (CG_WHEEL && !kernel_env)
                kernel_env = cg_kernel_env_default(own);
        if (runtime_dir(parent, sizeof(parent), err) < 0 || make_own_dir(parent, err) < 0)
                return -1;
        sha256_init(&h);
        add(&h, cg_version());
        add(&h, preload ? preload : "");
        add(&h, kernel_env ? kernel_env : "");
        if (kernel_env && asprintf(&state, "%s/" CG_ENV_STATE, kernel_env) < 0) {
                state = NULL;
                return cg_fail(err, CG_E_NOMEM, "path of the supervisor's folder");
        }
        if (state) /* its zygote has read what was changed since */
                add_program(&h, state);
        add_program(&h, CG_INSTALLED(CG_LIBEXECDIR "/cellgate-supervisor"));
        if (!CG_WHEEL)
                add_program(&h, CG_INSTALLED(CG_KERNEL_PROGRAM));
        else if (cg_kernel_env_module(kernel_env, module, NULL) == 0)
                add_program(&h, module);
        sha256_digest(&h, sizeof(digest), digest);
        cg_hex(hex, digest, (sizeof(hex) - 1) / 2);
        if (snprintf(buf, size, "%s/" PREFIX "%s", parent, hex) >= (int)size)
                return cg_fail(err, CG_E_LIMIT, "path of the supervisor's folder is too long");
        return 0;
}

int cg_jup_addresses(int (*each)(const char *address, void *data), void *data, struct cg_err *err)
{
        char parent[128], path[400];
        struct dirent *e;
        struct stat st;
        int r = 0;
        DIR *d;

        if (runtime_dir(parent, sizeof(parent), err) < 0)
                return -1;
        d = opendir(parent);
        while (d && r == 0 && (e = readdir(d))) {
                if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
                        continue;
                snprintf(path, sizeof(path), "%s/%s", parent, e->d_name);
                if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid())
                        r = each(path, data);
        }
        if (d)
                closedir(d);
        return r;
}
