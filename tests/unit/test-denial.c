/* Denials: which rule denied a file, and what is said of it. */
#include <linux/capability.h>
#include <sys/syscall.h>

#include "sandbox/inside/access.h"
#include "sandbox/command/denial.h"
#include "sandbox/plan.h"
#include "unit.h"

/* A plan with one mount of each kind; nothing is looked up. */
static int make_plan(void **state)
{
        static const struct cg_plan_mount mounts[] = {
                { .kind = CG_PLAN_WRITE, .path = (char *)"/w", .src = (char *)"/w" },
                { .kind = CG_PLAN_PIN, .path = (char *)"/w/sub" },
                { .kind = CG_PLAN_READ,
                  .path = (char *)"/w/sub/no",
                  .why = (char *)"filesystem.denyWrite.0" },
                { .kind = CG_PLAN_READ, .path = (char *)"/w/.git/config", .why = (char *)"mandatory" },
                { .kind = CG_PLAN_HIDE, .path = (char *)"/w/secret", .why = (char *)"filesystem.denyRead.2" },
                { .kind = CG_PLAN_MASK, .path = (char *)"/w/token", .data = (char *)"x", .len = 1 },
                { .kind = CG_PLAN_HIDE, .path = (char *)"/h", .why = (char *)"credentials.files.1" },
        };
        struct cg_sandbox *sb = NULL;

        OK(cg_sandbox_new(&sb, &err));
        for (size_t i = 0; i < CG_ARRAY_LEN(mounts); i++)
                OK(cg_plan_insert(sb, &mounts[i], &err));
        OK(cg_plan_add_hide(sb, "/etc/passwd", CG_WHY_CREDENTIALS, &err));
        OK(cg_sandbox_add_hide(sb, "/etc/group", &err));
        *state = sb;
        return 0;
}

static int free_plan(void **state)
{
        cg_sandbox_free(*state);
        return 0;
}

TEST_WITH(rules, make_plan, free_plan)
{
        static const struct {
                enum cg_access access;
                const char *path;
                int error;
                enum cg_access_rule rule;
                const char *setting;
        } cases[] = {
                { CG_ACCESS_WRITE, "/etc/hosts", EROFS, CG_ACCESS_NOT_ALLOWED, NULL },
                { CG_ACCESS_WRITE, "/etc/hosts", EACCES, CG_ACCESS_NOT_ALLOWED, NULL },
                /* its own permissions */
                { CG_ACCESS_READ, "/etc/hosts", EACCES, CG_ACCESS_NONE, NULL },
                { CG_ACCESS_READ, "/etc/none", ENOENT, CG_ACCESS_NONE, NULL },
                { CG_ACCESS_WRITE, "/w/x", EACCES, CG_ACCESS_NONE, NULL },
                { CG_ACCESS_WRITE, "/w/sub/x", EACCES, CG_ACCESS_NONE, NULL },
                { CG_ACCESS_WRITE, "/w", EBUSY, CG_ACCESS_IN_PLACE, NULL },
                { CG_ACCESS_WRITE, "/w/sub", EBUSY, CG_ACCESS_IN_PLACE, NULL },
                { CG_ACCESS_WRITE, "/w/other", EBUSY, CG_ACCESS_NONE, NULL },
                { CG_ACCESS_WRITE, "/w/sub/no", EROFS, CG_ACCESS_DENY_WRITE, "filesystem.denyWrite.0" },
                { CG_ACCESS_WRITE, "/w/sub/no/x", EROFS, CG_ACCESS_DENY_WRITE, "filesystem.denyWrite.0" },
                { CG_ACCESS_WRITE, "/w/sub/nox", EACCES, CG_ACCESS_NONE, NULL },
                { CG_ACCESS_READ, "/w/sub/no/x", EACCES, CG_ACCESS_NONE, NULL },
                { CG_ACCESS_WRITE, "/w/.git/config", EROFS, CG_ACCESS_DENY_WRITE, "mandatory" },
                { CG_ACCESS_READ, "/w/secret", EACCES, CG_ACCESS_DENY_READ, "filesystem.denyRead.2" },
                { CG_ACCESS_READ, "/w/secret/x", ENOENT, CG_ACCESS_DENY_READ, "filesystem.denyRead.2" },
                { CG_ACCESS_EXEC, "/w/secret", EACCES, CG_ACCESS_DENY_READ, "filesystem.denyRead.2" },
                { CG_ACCESS_READ, "/h/x", ENOENT, CG_ACCESS_DENY_READ, "credentials.files.1" },
                { CG_ACCESS_WRITE, "/w/token", EROFS, CG_ACCESS_MASKED, NULL },
                { CG_ACCESS_READ, "/etc/passwd", EACCES, CG_ACCESS_CREDENTIALS, NULL },
                { CG_ACCESS_READ, "/etc/group", EACCES, CG_ACCESS_PRIVATE, NULL },
                { CG_ACCESS_WRITE, "/proc/sys/vm/x", EROFS, CG_ACCESS_OWN, NULL },
                { CG_ACCESS_WRITE, "/tmp/x", EACCES, CG_ACCESS_NONE, NULL },
                { CG_ACCESS_WRITE, "/etc/hosts", EISDIR, CG_ACCESS_NONE, NULL },
                { CG_ACCESS_WRITE, "/etc/hosts", ENOSPC, CG_ACCESS_NONE, NULL },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++) {
                const char *setting = "unset";
                enum cg_access_rule rule = cg_access_explain(*state, cases[i].access, cases[i].path,
                                                             cases[i].error, false, &setting);

                if (rule != cases[i].rule ||
                    (cases[i].setting ? !setting || strcmp(setting, cases[i].setting) != 0 : setting != NULL))
                        fail_msg("%s (%d): rule %d, setting %s", cases[i].path, cases[i].error, rule,
                                 setting ? setting : "none");
        }
}

static void drop_capabilities(void)
{
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct none[2] = { { 0 } };

        assert_int_equal(syscall(SYS_capset, &header, none), 0);
}

/* In a sandbox user 0 has no powers over modes and owners. */
TEST_WITH(powers_of_root, make_plan, free_plan)
{
        char folder[] = "/tmp/cg-denial-XXXXXX", file[sizeof(folder) + 5];
        const struct {
                enum cg_access access;
                const char *path;
                int error;
                enum cg_access_rule rule;
        } cases[] = {
                { CG_ACCESS_READ, file, EACCES, CG_ACCESS_PRIVILEGES },
                { CG_ACCESS_WRITE, file, EACCES, CG_ACCESS_PRIVILEGES },
                { CG_ACCESS_EXEC, file, EACCES, CG_ACCESS_NONE },
                { CG_ACCESS_READ, file, EPERM, CG_ACCESS_PRIVILEGES },
                { CG_ACCESS_READ, file, ENOENT, CG_ACCESS_NONE },
                /* Their modes allow it: init refused it. */
                { CG_ACCESS_READ, folder, EACCES, CG_ACCESS_NONE },
                { CG_ACCESS_WRITE, folder, EACCES, CG_ACCESS_NONE },
                { CG_ACCESS_READ, "/etc/hosts", EACCES, CG_ACCESS_NONE },
        };
        const char *setting;

        drop_capabilities();
        assert_non_null(mkdtemp(folder));
        snprintf(file, sizeof(file), "%s/file", folder);
        assert_int_equal(close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0)), 0);
        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++)
                if (cg_access_explain(*state, cases[i].access, cases[i].path, cases[i].error, true,
                                      &setting) != cases[i].rule)
                        fail_msg("case %zu", i);
        /* A file that may be written cannot be removed where its folder may not be written. */
        assert_int_equal(chmod(file, 0600), 0);
        assert_int_equal(cg_access_explain(*state, CG_ACCESS_WRITE, file, EACCES, true, &setting),
                         CG_ACCESS_NONE);
        assert_int_equal(chmod(folder, 0500), 0);
        assert_int_equal(cg_access_explain(*state, CG_ACCESS_WRITE, file, EACCES, true, &setting),
                         CG_ACCESS_PRIVILEGES);
        assert_int_equal(cg_access_explain(*state, CG_ACCESS_READ, file, EACCES, true, &setting),
                         CG_ACCESS_NONE);
        assert_int_equal(chmod(folder, 0700), 0);
        assert_int_equal(unlink(file), 0);
        assert_int_equal(rmdir(folder), 0);
}

TEST_WITH(nothing_is_denied_without_a_sandbox, make_plan, free_plan)
{
        const char *setting;

        cg_sandbox_set_off(*state);
        assert_int_equal(cg_access_explain(*state, CG_ACCESS_WRITE, "/etc/hosts", EROFS, true, &setting),
                         CG_ACCESS_NONE);
        assert_int_equal(cg_access_explain_network(*state), CG_ACCESS_NONE);
}

TEST(words)
{
        struct cg_access_words w;

        cg_access_words(CG_ACCESS_DENY_WRITE, "mandatory", "/w/.git/config", true, &w);
        assert_string_equal(w.how, "set filesystem.allowGitConfig");
        cg_access_words(CG_ACCESS_DENY_WRITE, "mandatory", "/w/.bashrc", true, &w);
        assert_null(w.how);
        cg_access_words(CG_ACCESS_DENY_READ, "filesystem.denyRead.2", "/w/secret", true, &w);
        assert_string_equal(w.rule, "filesystem.denyRead.2");
        assert_string_equal(w.why, "filesystem.denyRead.2 hides it");
        for (int i = 1; cg_access_rule_name((enum cg_access_rule)i); i++) {
                assert_int_equal(cg_access_rule_named(cg_access_rule_name((enum cg_access_rule)i)), i);
                cg_access_words((enum cg_access_rule)i, NULL, "/x", false, &w);
                assert_true(w.rule[0] && w.why[0]);
                if (i == CG_ACCESS_UNIX_SOCKETS)
                        break;
        }
        assert_int_equal(cg_access_rule_named("nothing"), CG_ACCESS_NONE);
}

TEST(settings_are_names)
{
        assert_true(cg_access_is_setting("filesystem.denyRead.3"));
        assert_true(cg_access_is_setting(CG_WHY_OWN));
        assert_true(cg_access_is_setting(CG_WHY_GUARD));
        assert_true(cg_access_is_setting(CG_WHY_LINK));
        assert_false(cg_access_is_setting(""));
        assert_false(cg_access_is_setting("run: curl x | sh"));
        assert_false(cg_access_is_setting("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

TEST(calls)
{
        struct cg_sandbox_denial d = { .magic = CG_SANDBOX_DENIAL_MAGIC,
                                       .nr = SYS_socket,
                                       .args = { UINT64_C(0x100000001), SOCK_STREAM },
                                       .pid = 7,
                                       .error = EPERM,
                                       .name = "x\n[cellgate] y" };
        cg_auto_json json_t *o = cg_denial_of_call(&d, true, true), *k = cg_denial_of_call(&d, false, false);
        cg_auto_buf struct cg_buf b = { .max = 4096 };

        cg_denial_stamp(o);
        assert_string_equal(json_string_value(json_object_get(o, "call")), "socket(AF_UNIX, SOCK_STREAM)");
        assert_string_equal(json_string_value(json_object_get(o, "errno")), "EPERM");
        assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "process"), "pid")), 7);
        assert_true(json_is_string(json_object_get(o, "how")));
        assert_string_equal(json_string_value(json_object_get(k, "how")),
                            "list the socket in network.allowUnixSockets");
        cg_denial_sentence(o, &b);
        assert_int_equal(cg_buf_end(&b, NULL), 0);
        assert_null(strchr(b.data, '\n'));
        assert_non_null(strstr(b.data, "(x\\x0a[cellgate] y)"));
}

/* Control sequences of terminals are shown escaped. */
TEST(sentences_are_safe)
{
        cg_auto_json json_t *o = json_pack("{s:s, s:s, s:s, s:n, s:s}", "operation", "file-write", "path",
                                           "/a\x1b[31m\n\t\u202e", "why", "no", "how", "source", "kernel");
        cg_auto_buf struct cg_buf b = { .max = 4096 };

        cg_denial_sentence(o, &b);
        assert_int_equal(cg_buf_end(&b, NULL), 0);
        assert_string_equal(b.data, "the sandbox refused writing /a\\x1b[31m\\x0a\\x09\\u202e: no");
}
