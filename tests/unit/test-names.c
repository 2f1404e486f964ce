/*
 * Names that programs outside obey: matching, git's places, and what a repository's configuration
 * may say.
 */
#include "sandbox/names/names.h"
#include "cases.h"

#define ROOT "/srv/work"

static const char *write_rule(const char *path)
{
        return cg_names_find(path, strlen(ROOT), CG_NAME_WRITE);
}

TEST(test_find)
{
        EACH_CASE(c, "rows")
        {
                const char *rule;
                char path[200];

                snprintf(path, sizeof(path), ROOT "%s", c.in);
                rule = write_rule(path);
                if (!rule != !c.out || (c.out && strcmp(c.out, "*") != 0 && strcmp(rule, c.out) != 0))
                        fail_msg("%s", rule ? rule : "no row");
        }
        assert_int_equal(cg_git_part(ROOT "/r/.g\u200cit/config", strlen(ROOT)), CG_GIT_CONFIG);
        assert_int_equal(cg_git_part(ROOT "/r/.git/hook\u017f/x", strlen(ROOT)), CG_GIT_DENIED);
}

/* The root's own name is not compared, except for names that begin with it. */
TEST(test_root)
{
        assert_null(cg_names_find("/home/u/.vscode/x", strlen("/home/u/.vscode"), CG_NAME_WRITE));
        assert_non_null(
                cg_names_find("/home/u/.claude/commands/x", strlen("/home/u/.claude"), CG_NAME_WRITE));
        assert_non_null(cg_names_find("/.bashrc", 0, CG_NAME_WRITE));
}

TEST(test_leads)
{
        assert_non_null(cg_names_leads(ROOT "/.claude", strlen(ROOT)));
        assert_non_null(cg_names_leads(ROOT "/a/.config", strlen(ROOT)));
        assert_non_null(cg_names_leads(ROOT "/.local/share", strlen(ROOT)));
        assert_null(cg_names_leads(ROOT "/.claude/x", strlen(ROOT)));
        assert_null(cg_names_leads(ROOT "/x", strlen(ROOT)));
}

static bool hidden_below(const char *name)
{
        size_t n;
        const struct cg_name *rows = cg_names(&n);

        for (size_t i = 0; i < n; i++) {
                if (rows[i].what & CG_NAME_BELOW && cg_names_has(&rows[i], name))
                        return true;
        }
        return false;
}

TEST(test_below)
{
        size_t n;
        const struct cg_name *rows = cg_names(&n);

        EACH_CASE(c, "hidden")
        assert_true(hidden_below(c.in));
        EACH_CASE(c, "shown")
        assert_false(hidden_below(c.in));
        for (size_t i = 0; i < n; i++)
                assert_true(!(rows[i].what & CG_NAME_BELOW) || !strchr(rows[i].path, '/'));
}

/* Each row of the table fits its own name. */
TEST(test_rows)
{
        size_t n, n_plain;
        const struct cg_name *rows = cg_names(&n), *plain = cg_names_plain(&n_plain);

        assert_ptr_equal(plain + n_plain, rows + n);
        for (size_t i = 0; i < n; i++) {
                char path[300] = "/r/";

                assert_int_equal(rows[i].path[0] != '.', rows + i >= plain);

                strcat(path, rows[i].path);
                for (char *p = path; *p; p++)
                        *p = *p == '*' ? 'x' : *p;
                assert_true(cg_names_match(rows[i].path, path, 2));
                assert_non_null(cg_names_find(path, 2, rows[i].what));
                assert_true(rows[i].what);
        }
}

TEST(test_git)
{
        static const char *const parts[] = {
                [CG_GIT_FREE] = "free",     [CG_GIT_SELF] = "self",   [CG_GIT_CONFIG] = "config",
                [CG_GIT_DENIED] = "denied", [CG_GIT_HOOKS] = "hooks", [CG_GIT_SAMPLE] = "sample"
        };
        size_t next = 0, top = 0;

        EACH_CASE(c, "parts of .git")
        {
                const char *part = parts[cg_git_part(c.in, 2)];

                if (strcmp(part, c.out) != 0)
                        fail_msg("%s", part);
        }
        assert_int_equal(cg_git_part_bare("/r/a/b/config", 2, &next, &top), CG_GIT_CONFIG);
        assert_int_equal(top, strlen("/r/a/b"));
        assert_int_equal(cg_git_part_bare("/r/a/b/config", 2, &next, &top), CG_GIT_FREE);
        next = 0; /* each folder that could be one */
        assert_int_equal(cg_git_part_bare("/r/modules/hooks/config", 2, &next, &top), CG_GIT_DENIED);
        assert_int_equal(top, strlen("/r"));
        assert_int_equal(cg_git_part_bare("/r/modules/hooks/config", 2, &next, &top), CG_GIT_DENIED);
        assert_int_equal(top, strlen("/r/modules"));
        assert_int_equal(cg_git_part_bare("/r/modules/hooks/config", 2, &next, &top), CG_GIT_CONFIG);
        assert_int_equal(top, strlen("/r/modules/hooks"));
}

TEST(test_config)
{
        EACH_CASE(c, "plain configurations")
        assert_true(cg_git_config_is_plain(c.in, c.len));
        EACH_CASE(c, "other configurations")
        if (cg_git_config_is_plain(c.in, c.len))
                fail_msg("accepted");
}

TEST(test_words)
{
        EACH_CASE(c, "words")
        assert_string_equal(cg_names_of(c.in), c.out);
        /* Each returned name matches the path that was refused. */
        assert_true(cg_names_match(".git/hooks", "/r/.git/hooks/x", 2));
        assert_true(cg_names_match(".git", "/r/.git/config", 2));
        assert_true(cg_names_match("*", "/r/anything/x", 2));
}
