/*
 * The token of a loopback port, which any user of the machine can connect to. It is in a file that
 * only this user can read, in the state folder, which every sandbox hides.
 */
#include "base/fd.h"
#include "base/sha256_hex.h"
#include "base/state_dir.h"
#include "mcp_http/monitor.h"

#define MIN_TOKEN   32
#define TOKEN_BYTES 32 /* of a new one; twice as many characters */

/* False: the file is there already, or errno says what failed. */
static bool make(const char *path)
{
        char text[2 * TOKEN_BYTES + 2];
        cg_auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

        if (fd < 0)
                return false;
        if (cg_random_hex(text, TOKEN_BYTES, NULL) < 0)
                return false;
        strcat(text, "\n");
        return write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1;
}

int cg_hf_token(const char *file, char path[PATH_MAX], char token[CG_HF_MAX_TOKEN + 1], struct cg_err *err)
{
        char dir[PATH_MAX], text[CG_HF_MAX_TOKEN + 2];
        cg_auto_fd int fd = -1;
        struct stat st;
        ssize_t n;

        if (!file && cg_state_folder("mcp-http", dir, err) < 0)
                return -1;
        /* cg_state_folder() leaves room for a name. */
        if (!file)
                strcat(dir, "/token");
        if (snprintf(path, PATH_MAX, "%s", file ?: dir) >= PATH_MAX)
                return cg_fail(err, CG_E_LIMIT, "--token-file: the path is too long");
        if (!make(path) && errno != EEXIST)
                return cg_fail_errno(err, "token file %s", path);
        fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return cg_fail_errno(err, "token file %s", path);
        if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
                return cg_fail(
                        err, CG_E_STATE,
                        "token file %s must be a file of this user's with mode 0600: others could read it. "
                        "Remove it, and a new one is made",
                        path);
        n = read(fd, text, sizeof(text));
        text[n > 0 ? n - (text[n - 1] == '\n') : 0] = '\0';
        n = (ssize_t)strlen(text);
        if (n < MIN_TOKEN || n > CG_HF_MAX_TOKEN || strspn(text, CG_HF_TOKEN_CHARS) != (size_t)n)
                return cg_fail(
                        err, CG_E_STATE,
                        "token file %s must have one line of %d to %d letters, digits and -._~+/=: remove it, "
                        "and a new one is made",
                        path, MIN_TOKEN, CG_HF_MAX_TOKEN);
        memcpy(token, text, (size_t)n + 1);
        return 0;
}

int cg_hf_approver(struct hf_options *o, char path[PATH_MAX], struct cg_err *err)
{
        if (cg_hf_token(o->approver_token, path, o->approver, err) < 0)
                return -1;
        if (strcmp(o->approver, o->setup.token) == 0)
                return cg_fail(err, CG_E_INVAL,
                               "--approver-token-file %s has the token of the agent, who must not decide",
                               path);
        cg_sha256(o->approver, strlen(o->approver), o->setup.approver);
        return 0;
}
