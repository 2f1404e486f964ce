/*
 * Names that programs outside obey: matching, git's places, and what a repository's configuration
 * may say.
 */
#include <string.h>

#include "base/util.h"
#include "sandbox/names/names.h"
#include "unit.h"

#define ROOT "/srv/work"

static const char *write_rule(const char *path)
{
        return cg_names_find(path, strlen(ROOT), CG_NAME_WRITE);
}

TEST(test_find)
{
        assert_string_equal(write_rule(ROOT "/.bashrc"), ".bashrc");
        assert_string_equal(write_rule(ROOT "/a/b/c/d/e/f/g/.BashRC"), ".bashrc");
        assert_string_equal(write_rule(ROOT "/.vscode"), ".vscode");
        assert_string_equal(write_rule(ROOT "/x/.vscode/y/tasks.json"), ".vscode");
        assert_string_equal(write_rule(ROOT "/.claude/settings.local.json"), ".claude/settings*.json");
        assert_string_equal(write_rule(ROOT "/.claude/commands/x.md"), ".claude/commands");
        assert_string_equal(write_rule(ROOT "/x.code-workspace"), "*.code-workspace");
        assert_string_equal(write_rule(ROOT "/jupyter_server_config.py"), "jupyter_*_config.*");
        assert_string_equal(write_rule(ROOT "/a/mise/config.local.toml"), "mise/config*.toml");
        assert_string_equal(write_rule(ROOT "/.bsp/x.json"), ".bsp");
        assert_string_equal(write_rule(ROOT "/.lintstagedrc.mjs"), ".lintstagedrc*");
        assert_null(write_rule(ROOT "/.lsp/.cache/x"));
        assert_null(write_rule(ROOT "/mise/tasks/x"));
        assert_null(write_rule(ROOT "/renv/library/x"));
        assert_null(write_rule(ROOT "/eslint.config.js"));
        /* as file systems of Windows read it */
        assert_string_equal(write_rule(ROOT "/.bashrc. "), ".bashrc");
        /*
         * As file systems that know no case read them: the long s, the sign of Kelvin, and what is
         * passed over.
         */
        assert_string_equal(write_rule(ROOT "/.ba\xc5\xbfhrc"), ".bashrc");
        assert_string_equal(write_rule(ROOT "/.v\xc5\xbf"
                                            "code/x"),
                            ".vscode");
        assert_string_equal(write_rule(ROOT "/.\xe2\x84\xaa"
                                            "shrc"),
                            ".kshrc");
        assert_string_equal(write_rule(ROOT "/\xef\xbb\xbf.mcp.json"), ".mcp.json");
        assert_string_equal(write_rule(ROOT "/.\xe2\x80\x8d"
                                            "bashrc\xe2\x80\x8c"),
                            ".bashrc");
        assert_string_equal(write_rule(ROOT "/a\xe2\x81\xaf/.ideA\xe2\x80\xae/x"), ".idea");
        assert_null(write_rule(ROOT "/.ba\xc3\x9fhrc"));
        assert_null(write_rule(ROOT "/\xe2\x80"));
        assert_non_null(write_rule(ROOT "/jupyter_server_config.d/x.json"));
        assert_null(write_rule(ROOT "/venv/etc/jupyter/jupyter_server_config.d/x.json"));
        assert_non_null(write_rule(ROOT "/venv/etc/jupyter/jupyter_server_config.json"));
        assert_null(write_rule(ROOT "/.claude/notes.md"));
        assert_null(write_rule(ROOT "/bashrc"));
        assert_null(write_rule(ROOT "/.bashrc2"));
        assert_null(write_rule(ROOT "/commands/x.md"));
        assert_null(write_rule(ROOT "/.claude"));
        assert_null(write_rule(ROOT "/.config"));
}

/* As folders without case take them: letters that fold to ASCII's, and what is ignored. */
TEST(test_folded)
{
        static const char *const names[] = {
                ROOT "/.ba\u017fhrc",           ROOT "/.bash\u200brc",
                ROOT "/\u2060.bashrc",          ROOT "/.bashrc\ufeff",
                ROOT "/.\u00dfh/config",        ROOT "/.gitcon\ufb01g",
                ROOT "/.\u212a\u017fhrc",       ROOT "/a/.vscode\u200d/tasks.json",
                ROOT "/x.code-work\u00adspace",
        };

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                assert_non_null(write_rule(names[i]));
        assert_null(write_rule(ROOT "/.b\u00e4shrc"));
        assert_null(write_rule(ROOT "/\u200bbashrc"));
        assert_null(write_rule(ROOT "/.ba\xc5"));
        assert_null(write_rule(ROOT "/\u200b"));
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
        static const char *const hidden[] = { ".env",   ".env.local",       ".ENV",           "x.kdbx",
                                              ".netrc", ".git-credentials", ".env.production" };
        static const char *const shown[] = { ".env.example", ".env.sample", ".env.template", ".env.dist",
                                             ".envrc",       "env",         "x.env",         "kdbx" };
        size_t n;
        const struct cg_name *rows = cg_names(&n);

        for (size_t i = 0; i < CG_ARRAY_LEN(hidden); i++)
                assert_true(hidden_below(hidden[i]));
        for (size_t i = 0; i < CG_ARRAY_LEN(shown); i++)
                assert_false(hidden_below(shown[i]));
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
                assert_true(rows[i].what && rows[i].by[0]);
        }
}

TEST(test_git)
{
        static const struct {
                const char *path;
                enum cg_git_part part;
        } rows[] = {
                { "/r/.git", CG_GIT_SELF },
                { "/r/a/.GIT", CG_GIT_SELF },
                { "/r/.git/config", CG_GIT_CONFIG },
                { "/r/.git/config.lock", CG_GIT_FREE },
                { "/r/.git/config.worktree", CG_GIT_DENIED },
                { "/r/.git/commondir", CG_GIT_DENIED },
                { "/r/.git/hooks", CG_GIT_HOOKS },
                { "/r/.git/hooks/pre-commit", CG_GIT_DENIED },
                { "/r/.git/hooks/x.sample", CG_GIT_SAMPLE },
                { "/r/.git/branches", CG_GIT_HOOKS },
                { "/r/.git/branches/x", CG_GIT_DENIED },
                { "/r/.git/remotes/x", CG_GIT_DENIED },
                { "/r/.git/refs/remotes/x", CG_GIT_FREE },
                { "/r/.git/logs/refs/remotes/x", CG_GIT_FREE },
                { "/r/.g\xe2\x80\x8cit/config", CG_GIT_CONFIG },
                { "/r/.git/hoo\xe2\x84\xaas/x", CG_GIT_DENIED },
                { "/r/.git/hooks/d/x.sample", CG_GIT_DENIED },
                { "/r/.git/modules", CG_GIT_HOOKS },
                { "/r/.git/modules/a/config", CG_GIT_CONFIG },
                { "/r/.git/modules/refs/config", CG_GIT_CONFIG },
                { "/r/.git/modules/a/hooks/update", CG_GIT_DENIED },
                { "/r/.git/worktrees/w/commondir", CG_GIT_DENIED },
                { "/r/.git/HEAD", CG_GIT_FREE },
                { "/r/.git/sequencer", CG_GIT_HOOKS },
                { "/r/.git/sequencer/opts", CG_GIT_CONFIG },
                { "/r/.git/Sequen\xe2\x80\x8c"
                  "cer/OPTS",
                  CG_GIT_CONFIG },
                { "/r/.git/worktrees/w/sequencer/opts", CG_GIT_CONFIG },
                { "/r/.git/sequencer/todo", CG_GIT_FREE },
                { "/r/.git/opts", CG_GIT_FREE },
                { "/r/.git/refs/heads/sequencer/opts", CG_GIT_FREE },
                { "/r/sequencer/opts", CG_GIT_FREE },
                { "/r/.git/refs/heads/config", CG_GIT_FREE },
                { "/r/.git/logs/refs/heads/hooks/config", CG_GIT_FREE },
                { "/r/.gitignore", CG_GIT_FREE },
                { "/r/config", CG_GIT_FREE },
                /* one in another, where that keeps branches */
                { "/r/.git/refs/x/.git", CG_GIT_SELF },
                { "/r/.git/refs/x/.git/config", CG_GIT_CONFIG },
                { "/r/.git/objects/.git/hooks/update", CG_GIT_DENIED },
                { "/r/.git/logs/.git/refs/.git/commondir", CG_GIT_DENIED },
        };
        size_t next = 0, top = 0;

        for (size_t i = 0; i < CG_ARRAY_LEN(rows); i++)
                assert_int_equal(cg_git_part(rows[i].path, 2), rows[i].part);
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

static bool plain(const char *text)
{
        return cg_git_config_is_plain(text, strlen(text));
}

TEST(test_config)
{
        static const char *const good[] = {
                "",
                "\n",
                "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n",
                "[remote \"origin\"]\n\turl = https://example.org/a/b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
                "[remote \"o\"]\n\turl = git@github.com:a/b.git\n",
                "[remote \"o\"]\n\turl = /srv/git/x\n",
                "[branch \"feature/x-1\"]\n\tremote = origin\n\tmerge = refs/heads/feature/x-1\n",
                "[user]\n\tname = A. B\303\251\n\temail = a@b.c\n",
                "[core]\n\tbare = true",
                "[options]\n\tedit = false\n\tallow-empty = true\n\tmainline = 1\n",
        };
        static const char *const bad[] = {
                "[core]\n\tfsmonitor = true\n",
                "[options]\n\tstrategy = x/evil\n",
                "[options]\n\tgpg-sign = x\n",
                "[options]\n\t-edit = false\n",
                "[options \"x\"]\n\tedit = false\n",
                "[core]\n\tsshCommand = x\n",
                "[core]\n\thooksPath = x\n",
                "[core]\n\tworktree = /\n",
                "[core]\n\tpager = less\n",
                "[core]\n\teditor = vi\n",
                "[include]\n\tpath = x\n",
                "[includeIf \"gitdir:/\"]\n\tpath = x\n",
                "[alias]\n\tst = !x\n",
                "[filter \"x\"]\n\tclean = x\n",
                "[remote \"o\"]\n\turl = ext::sh -c x\n",
                "[remote \"o\"]\n\turl = -x\n",
                "[remote \"o\"]\n\turl = ssh://-oProxyCommand=x/y\n",
                "[remote \"o\"]\n\turl = git@-o:x\n",
                "[remote \"o\"]\n\tvcs = x\n",
                "[remote \"o\"]\n\tuploadpack = x\n",
                "[core]\n\tbare = true # x\n",
                "[core]\n\tbare = \"true\"\n",
                "[core]\n\tbare = tr\\\nue\n",
                "[core] bare = true\n",
                "[core]\n\tbare\n",
                "bare = true\n",
                "[core]\r\n",
                "[user]\n\tname = x;y\n",
                "[user]\n\tname = a\\nb\n",
                "[branch \"x\"]\n\tremote = ext::x\n",
                "[branch \"x\\\"]\n",
                "[remote \"..\"]\n\turl = /x\n",
                "[extensions]\n\tworktreeConfig = true\n",
                "[core.x]\n\tbare = true\n",
                "[core \"x\"]\n\tbare = true\n",
                "[remote]\n\turl = /x\n",
                "[credential]\n\thelper = x\n",
                "[core]\n\tbare = true\n[core]\n\tfsmonitor = x",
                "[url \"ext::x\"]\n\tinsteadOf = https:\n",
                "[\n",
                "[]\n",
                "\xef\xbb\xbf[core]\n",
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(good); i++)
                assert_true(plain(good[i]));
        for (size_t i = 0; i < CG_ARRAY_LEN(bad); i++)
                assert_false(plain(bad[i]));
        assert_false(cg_git_config_is_plain("[core]\n\0", 8));
        assert_true(cg_git_config_is_plain("", 0));
}

TEST(test_words)
{
        assert_string_equal(cg_names_of("/r/a/.npmrc"), ".npmrc");
        assert_string_equal(cg_names_of("/r/.git/config"), ".git/config");
        assert_string_equal(cg_names_of("/r/.git/hooks/x"), ".git/hooks");
        assert_string_equal(cg_names_of("/r/.git"), ".git");
        assert_string_equal(cg_names_of("/r/.git/sequencer/opts"), ".git/sequencer");
        /* Each returned name matches the path that was refused. */
        assert_true(cg_names_match(".git/hooks", "/r/.git/hooks/x", 2));
        assert_true(cg_names_match(".git", "/r/.git/config", 2));
        assert_true(cg_names_match("*", "/r/anything/x", 2));
}
