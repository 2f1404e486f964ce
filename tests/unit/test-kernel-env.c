/* Environments of kernels: how they are named and found, which are refused, and why. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/kernel_env.h"
#include "base/util.h"
#include "config.h"
#include "unit.h"

#define PACKAGES "lib/python" CG_PYTHON_VERSION "/site-packages"
#define DIST     "lib/python" CG_PYTHON_VERSION "/dist-packages"

/* A folder of its own for each test, without symlinks, with an environment "env" in it. */
struct place {
        char dir[PATH_MAX];
        char env[PATH_MAX + 8];
        char base[PATH_MAX + 32]; /* "base/bin", which pyvenv.cfg names as the home */
};

static char *path_in(const char *dir, const char *name)
{
        char *path;

        assert_true(asprintf(&path, "%s/%s", dir, name) > 0);
        return path;
}

static void write_file(const char *dir, const char *name, const char *text)
{
        cg_auto_free char *path = path_in(dir, name);
        FILE *f = fopen(path, "w");

        assert_non_null(f);
        assert_true(fputs(text, f) >= 0);
        assert_int_equal(fclose(f), 0);
}

static void make_folder(const char *dir, const char *name)
{
        cg_auto_free char *path = path_in(dir, name);

        assert_int_equal(cg_make_dirs(path, 0700, NULL), 0);
}

static void remove_file(const char *dir, const char *name)
{
        cg_auto_free char *path = path_in(dir, name);

        assert_int_equal(unlink(path), 0);
}

static void write_config(const struct place *p, const char *version)
{
        char text[2 * PATH_MAX];

        snprintf(text, sizeof(text), "home = %s\ninclude-system-site-packages = false\nversion = %s\n",
                 p->base, version);
        write_file(p->env, "pyvenv.cfg", text);
}

static int enter(void **state)
{
        struct place *p = calloc(1, sizeof(*p));
        char dir[] = "/tmp/cellgate-test-XXXXXX";

        assert_non_null(p);
        assert_non_null(mkdtemp(dir));
        assert_non_null(realpath(dir, p->dir));
        snprintf(p->env, sizeof(p->env), "%s/env", p->dir);
        snprintf(p->base, sizeof(p->base), "%s/base/bin", p->dir);
        make_folder(p->dir, "base/bin");
        make_folder(p->dir, "base/lib");
        make_folder(p->dir, "elsewhere");
        make_folder(p->env, PACKAGES);
        make_folder(p->env, "bin");
        write_file(p->env, "bin/python", "");
        write_config(p, CG_PYTHON_VERSION ".1");
        *state = p;
        return 0;
}

static int leave(void **state)
{
        struct place *p = *state;
        int r = cg_remove_tree(p->dir, NULL);

        free(p);
        return r;
}

static void accepted(const struct place *p)
{
        struct cg_err err;

        if (cg_kernel_env_check(p->env, &err) < 0)
                fail_msg("%s", err.msg);
}

static void refused(const struct place *p, int code, const char *why)
{
        struct cg_err err;

        assert_int_equal(cg_kernel_env_check(p->env, &err), code);
        if (!strstr(err.msg, why))
                fail_msg("\"%s\" is not in \"%s\"", why, err.msg);
}

TEST(test_names)
{
        char longest[66];

        memset(longest, 'x', sizeof(longest));
        longest[64] = '\0';
        assert_true(cg_kernel_env_is_name("science-3.12_b"));
        assert_true(cg_kernel_env_is_name(longest));
        longest[64] = 'x';
        longest[65] = '\0';
        assert_false(cg_kernel_env_is_name(longest));
        assert_false(cg_kernel_env_is_name(""));
        assert_false(cg_kernel_env_is_name("."));
        assert_false(cg_kernel_env_is_name(".."));
        assert_false(cg_kernel_env_is_name(".hidden"));
        assert_false(cg_kernel_env_is_name("-rf"));
        assert_false(cg_kernel_env_is_name("a/b"));
        assert_false(cg_kernel_env_is_name("a b"));
        assert_false(cg_kernel_env_is_name("a\n"));
        assert_false(cg_kernel_env_is_name("\303\244"));
}

TEST(test_folder_of_names)
{
        cg_auto_free char *data = NULL, *home = NULL;
        char *none = NULL;
        struct cg_err err;

        setenv("HOME", "/h", 1);
        setenv("XDG_DATA_HOME", "/x", 1);
        assert_int_equal(cg_kernel_envs_dir(&data, &err), 0);
        assert_string_equal(data, "/x/cellgate/envs");
        setenv("XDG_DATA_HOME", "relative", 1);
        assert_int_equal(cg_kernel_envs_dir(&home, &err), 0);
        assert_string_equal(home, "/h/.local/share/cellgate/envs");
        unsetenv("XDG_DATA_HOME");
        unsetenv("HOME");
        assert_int_equal(cg_kernel_envs_dir(&none, &err), CG_E_INVAL);
        assert_null(none);
}

TEST_WITH(test_finding, enter, leave)
{
        const struct place *p = *state;
        cg_auto_free char *named = NULL, *linked = NULL, *by_python = NULL, *link = path_in(p->dir, "link"),
                          *python = path_in(p->env, "bin/python3"), *config = path_in(p->env, "pyvenv.cfg");
        char *none = NULL;
        struct cg_err err;

        setenv("XDG_DATA_HOME", p->dir, 1);
        make_folder(p->dir, "cellgate/envs/science");
        assert_int_equal(cg_kernel_env_find("science", &named, &err), 0);
        assert_non_null(strstr(named, "/cellgate/envs/science"));
        assert_int_equal(symlink(p->env, link), 0);
        assert_int_equal(cg_kernel_env_find(link, &linked, &err), 0);
        assert_string_equal(linked, p->env);
        /* By its interpreter, which is a symlink to that of its base. */
        write_file(p->base, "python3", "");
        assert_int_equal(symlink("../../base/bin/python3", python), 0);
        assert_int_equal(cg_kernel_env_find(python, &by_python, &err), 0);
        assert_string_equal(by_python, p->env);
        assert_int_equal(cg_kernel_env_find(config, &none, &err), CG_E_INVAL);

        assert_int_equal(cg_kernel_env_find("no-such", &none, &err), CG_E_NOTFOUND);
        assert_non_null(strstr(err.msg, "cellgate env create no-such"));
        assert_int_equal(cg_kernel_env_find("./no/such", &none, &err), CG_E_NOTFOUND);
        assert_int_equal(cg_kernel_env_find("..", &none, &err), CG_E_INVAL);
        assert_int_equal(cg_kernel_env_find("", &none, &err), CG_E_INVAL);
        unsetenv("XDG_DATA_HOME");
}

TEST_WITH(test_versions, enter, leave)
{
        const struct place *p = *state;
        char version[64];

        accepted(p);
        assert_true(cg_kernel_env_fits(p->env, version));
        assert_string_equal(version, CG_PYTHON_VERSION ".1");
        /* Conda and virtualenv spell the lines otherwise. */
        write_file(p->env, "pyvenv.cfg", "version_info=3.0.0.final.0 \r\n");
        assert_true(cg_kernel_env_fits(p->env, version));
        assert_string_equal(version, "3.0.0.final.0");
        write_file(p->env, "pyvenv.cfg", "# version\n");
        assert_true(cg_kernel_env_fits(p->env, version));
        assert_string_equal(version, "");

        write_config(p, "3.1.4");
        remove_file(p->env, "bin/python");
        assert_false(cg_kernel_env_fits(p->env, version));
        assert_string_equal(version, "3.1.4");
        refused(p, CG_E_INVAL, "is of Python 3.1.4, but kernels need Python " CG_PYTHON_VERSION);
        make_folder(p->env, "lib/python3.1t/site-packages");
        refused(p, CG_E_INVAL, "is of a free-threaded build of Python");
        remove_file(p->env, "pyvenv.cfg");
        refused(p, CG_E_INVAL, "is no virtual environment");
}

TEST_WITH(test_states, enter, leave)
{
        static const struct {
                const char *text; /* NULL: no file */
                enum cg_env_state state;
                bool ours;
        } rows[] = {
                { NULL, CG_ENV_UNTOUCHED, false },
                { CG_ENV_IS_READY, CG_ENV_READY, true },
                { CG_ENV_IS_CHANGING, CG_ENV_UNFINISHED, true },
                { CG_ENV_FOREIGN_READY, CG_ENV_READY, false },
                { CG_ENV_FOREIGN_CHANGING, CG_ENV_UNFINISHED, false },
                { "", CG_ENV_UNFINISHED, false },
                { "ready", CG_ENV_UNFINISHED, false },
        };
        const struct place *p = *state;

        for (size_t i = 0; i < CG_ARRAY_LEN(rows); i++) {
                if (rows[i].text)
                        write_file(p->env, CG_ENV_STATE, rows[i].text);
                assert_int_equal(cg_kernel_env_state(p->env), rows[i].state);
                assert_int_equal(cg_kernel_env_is_ours(p->env), rows[i].ours);
                if (rows[i].state == CG_ENV_UNFINISHED)
                        refused(p, CG_E_STATE, "is being changed");
                else
                        accepted(p);
        }
}

TEST_WITH(test_base_python, enter, leave)
{
        const struct place *p = *state;
        cg_auto_free char *link = path_in(p->dir, "link"), *base = NULL;
        char home[PATH_MAX], text[2 * PATH_MAX], *none = NULL;
        struct cg_err err;

        assert_int_equal(symlink(p->base, link), 0);
        snprintf(text, sizeof(text), "home = %s\n", link);
        write_file(p->env, "pyvenv.cfg", text);
        assert_true(cg_pyvenv_home(p->env, home, sizeof(home)));
        assert_string_equal(home, link);
        assert_false(cg_pyvenv_home(p->env, home, strlen(link)));
        assert_int_equal(cg_kernel_env_base(p->env, &base, &err), 0);
        assert_string_equal(base, p->base);

        write_file(p->env, "pyvenv.cfg", "home = bin\n");
        assert_false(cg_pyvenv_home(p->env, home, sizeof(home)));
        write_file(p->env, "pyvenv.cfg", "homes = /usr/bin\nhome\n");
        assert_false(cg_pyvenv_home(p->env, home, sizeof(home)));
        write_file(p->env, "pyvenv.cfg", "home = /no/such/folder\n");
        assert_int_equal(cg_kernel_env_base(p->env, &none, &err), 0);
        assert_null(none);
        assert_true(cg_kernel_env_base(p->base, &none, &err) < 0);
}

/* Each row is written to a .pth file; %s is the test's folder. */
TEST_WITH(test_pth_files, enter, leave)
{
        static const struct {
                const char *line;
                bool outside;
        } rows[] = {
                { "%s/elsewhere", true },
                { "../../../../elsewhere", true },
                { "# a comment\n\n%s/elsewhere", true },
                { "%s/env/" PACKAGES, false },
                { "../..", false },
                { "%s/base/lib", false },
                { "%s/base/libs", false }, /* does not exist */
                { "import sys; sys.path.append('%s/elsewhere')", true },
                { "import sys; sys.path.append(\"%s/elsewhere\")", true },
                { "import sys; sys.path.append('%s/base/lib')", false },
                { "import os; x = '/' and \"it's\"; '%s/env'", false },
                { "# %s/elsewhere", false },
        };
        const struct place *p = *state;
        char text[2 * PATH_MAX];

        for (size_t i = 0; i < CG_ARRAY_LEN(rows); i++) {
                const char *at = strstr(rows[i].line, "%s");

                snprintf(text, sizeof(text), "%.*s%s%s\n", at ? (int)(at - rows[i].line) : 0, rows[i].line,
                         at ? p->dir : "", at ? at + 2 : rows[i].line);
                write_file(p->env, PACKAGES "/more.pth", text);
                if (rows[i].outside)
                        refused(p, CG_E_INVAL, "more.pth leads to ");
                else
                        accepted(p);
        }
        /* A neighbour whose name begins like that of the library folder is not in it. */
        make_folder(p->dir, "base/libs");
        snprintf(text, sizeof(text), "%s/base/libs\n", p->dir);
        write_file(p->env, PACKAGES "/more.pth", text);
        refused(p, CG_E_INVAL, "/base/libs, outside of it");
        /* Without a known base Python its library folder allows nothing. */
        write_file(p->env, "pyvenv.cfg", "version = " CG_PYTHON_VERSION "\n");
        refused(p, CG_E_INVAL, "/base/libs, outside of it");
}

TEST_WITH(test_packages_elsewhere, enter, leave)
{
        const struct place *p = *state;
        cg_auto_free char *packages = path_in(p->env, PACKAGES), *inner = path_in(packages, "inner"),
                          *link = path_in(packages, "linked"), *target = path_in(p->dir, "elsewhere"),
                          *fifo = path_in(packages, "pipe.pth");

        make_folder(packages, "real");
        assert_int_equal(symlink("real", inner), 0);
        accepted(p);
        assert_int_equal(symlink(target, link), 0);
        refused(p, CG_E_INVAL, "linked leads to ");
        remove_file(packages, "linked");
        accepted(p);
        write_file(packages, "__editable___mine_finder.py", "");
        refused(p, CG_E_INVAL, "a package's source folder");
        remove_file(packages, "__editable___mine_finder.py");
        /* A .pth file that is no regular file is not read, and does not block. */
        assert_int_equal(mkfifo(fifo, 0600), 0);
        assert_true(cg_kernel_env_check(p->env, NULL) < 0);
}

/* site.py reads the base Python's, too, unless pyvenv.cfg has "false". */
TEST_WITH(test_packages_of_the_base, enter, leave)
{
        const struct place *p = *state;
        char text[2 * PATH_MAX], folder[PATH_MAX];

        make_folder(p->dir, "base/local/" DIST);
        snprintf(text, sizeof(text), "%s/elsewhere\n", p->dir);
        write_file(p->dir, "base/local/" DIST "/mine.pth", text);
        accepted(p);
        assert_false(cg_kernel_env_system_packages(p->env, 0, folder));
        for (size_t i = 0; i < 2; i++) {
                snprintf(text, sizeof(text), "home = %s\nversion = " CG_PYTHON_VERSION ".1\n%s", p->base,
                         i ? "include-system-site-packages = True\n" : "");
                write_file(p->env, "pyvenv.cfg", text);
                assert_true(cg_kernel_env_system_packages(p->env, 3, folder));
                refused(p, CG_E_INVAL, DIST "/mine.pth leads to ");
        }
        snprintf(text, sizeof(text), "%s/base/share\n", p->dir);
        make_folder(p->dir, "base/share");
        write_file(p->dir, "base/local/" DIST "/mine.pth", text);
        accepted(p);
}
