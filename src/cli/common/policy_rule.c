/* Rules that a person adds to a file of --policy: see policy_rule.h. */
#include "cli/common/policy_rule.h"

#include "base/ceilings.h"
#include "base/fd.h"
#include "cli/common/approve.h"
#include "cli/common/files.h"
#include "sandbox/settings/read.h"

/* All files as they are now, which the start has read: they may have been changed since. */
static int read_all(const struct cg_kernel_options *o, const char *settings, struct cg_pol_text *files,
                    struct cg_err *err)
{
        const char *workspace = o->connect.command ? NULL : o->workspace ?: ".";
        cg_auto_settings struct cg_settings *s = NULL;

        if (settings && cg_settings_parse(settings, strlen(settings), "settings", 0, &s, err) < 0)
                return -1;
        for (size_t i = 0; i < o->n.policies; i++) {
                files[i].name = o->policies[i];
                if (cg_policy_file_read(files[i].name, workspace, s, &files[i].text, &files[i].len, err) < 0)
                        return -1;
        }
        return 0;
}

/* @b gets the new text of the file. */
static int find(const struct cg_kernel_options *o, const char *settings, const struct cg_pol_call *call,
                char **rule, const char **file, struct cg_buf *b, struct cg_err *err)
{
        struct cg_pol_text *files = calloc(o->n.policies + 1, sizeof(*files));
        struct cg_pol_call c = cg_approve_complete(o->approve, call);
        size_t which;
        int r = -1;

        *rule = NULL;
        if (!o->n.policies)
                cg_fail(err, CG_E_NOTFOUND, "there is no file of --policy");
        else if (!files)
                cg_fail(err, CG_E_NOMEM, "policy");
        else if (cg_pol_rule_for(&c, rule, err) == 0 && read_all(o, settings, files, err) == 0)
                r = cg_pol_add_rule(files, o->n.policies, &c, *rule, &which, b, err);
        if (r == 0)
                *file = files[which].name;
        for (size_t i = 0; files && i < o->n.policies; i++)
                free(files[i].text);
        free(files);
        if (r < 0)
                free(CG_STEAL(*rule));
        return r;
}

int cg_policy_rule_find(const struct cg_kernel_options *o, const char *settings,
                        const struct cg_pol_call *call, char **rule, const char **file, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_SETTINGS };

        return find(o, settings, call, rule, file, &b, err);
}

int cg_policy_rule_write(const struct cg_kernel_options *o, const char *settings,
                         const struct cg_pol_call *call, const char *file, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_SETTINGS };
        cg_auto_free char *rule = NULL;
        char real[PATH_MAX];
        const char *now;
        struct stat st;

        if (find(o, settings, call, &rule, &now, &b, err) < 0)
                return -1;
        if (now != file)
                return cg_fail(err, CG_E_STATE, "the files of --policy have changed");
        if (!realpath(file, real) || stat(real, &st) < 0)
                return cg_fail_errno(err, "%s", file);
        return cg_write_atomically(real, b.data, b.len, st.st_mode & 0777, err);
}
