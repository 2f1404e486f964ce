/* Environments of kernels: how they are named and found, which are refused, and why. */
#include "base/kernel_env.h"
#include "config.h"
#include "unit.h"

#define PACKAGES "lib/python" CG_PYTHON_VERSION "/site-packages"
#define DIST     "lib/python" CG_PYTHON_VERSION "/dist-packages"

/* A folder of its own for each test, with an environment "env" and its "base" in it. */
static char env[64], home_dir[64];

static char *path_of(const char *dir, const char *name)
{
        char *path;

        assert_true(asprintf(&path, "%s/%s", dir, name) > 0);
        return path;
}

static void env_file(const char *name, const char *text)
{
        cg_auto_free char *path = path_of(env, name);

        write_file(path, text);
}

static void remove_file(const char *dir, const char *name)
{
        cg_auto_free char *path = path_of(dir, name);

        assert_int_equal(unlink(path), 0);
}

static void write_config(const char *version)
{
        char text[400];

        snprintf(text, sizeof(text), "home = %s\ninclude-system-site-packages = false\nversion = %s\n",
                 home_dir, version);
        env_file("pyvenv.cfg", text);
}

static int enter(void **state)
{
        static const char *const folders[] = { "base/bin", "base/lib", "elsewhere", "env/" PACKAGES,
                                               "env/bin" };

        if (enter_folder(state) < 0)
                return -1;
        snprintf(env, sizeof(env), "%s/env", test_dir);
        snprintf(home_dir, sizeof(home_dir), "%s/base/bin", test_dir);
        for (size_t i = 0; i < CG_ARRAY_LEN(folders); i++)
                make_folders(path_in(folders[i]));
        env_file("bin/python", "");
        write_config(CG_PYTHON_VERSION ".1");
        return 0;
}

static void accepted(void)
{
        OK(cg_kernel_env_check(env, &err));
}

static void refused(int code, const char *why)
{
        FAILS(code, why, cg_kernel_env_check(env, &err));
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

        setenv("HOME", "/h", 1);
        setenv("XDG_DATA_HOME", "/x", 1);
        OK(cg_kernel_envs_dir(&data, &err));
        assert_string_equal(data, "/x/cellgate/envs");
        setenv("XDG_DATA_HOME", "relative", 1);
        OK(cg_kernel_envs_dir(&home, &err));
        assert_string_equal(home, "/h/.local/share/cellgate/envs");
        unsetenv("XDG_DATA_HOME");
        unsetenv("HOME");
        FAILS(CG_E_INVAL, "", cg_kernel_envs_dir(&none, &err));
        assert_null(none);
}

TEST_WITH(test_finding, enter, leave_folder)
{
        cg_auto_free char *named = NULL, *linked = NULL, *by_python = NULL, *link = path_of(test_dir, "link"),
                          *python = path_of(env, "bin/python3"), *config = path_of(env, "pyvenv.cfg");
        char *none = NULL;

        setenv("XDG_DATA_HOME", test_dir, 1);
        make_folders(path_in("cellgate/envs/science"));
        OK(cg_kernel_env_find("science", &named, &err));
        assert_non_null(strstr(named, "/cellgate/envs/science"));
        assert_int_equal(symlink(env, link), 0);
        OK(cg_kernel_env_find(link, &linked, &err));
        assert_string_equal(linked, env);
        /* By its interpreter, which is a symlink to that of its base. */
        write_file(path_in("base/bin/python3"), "");
        assert_int_equal(symlink("../../base/bin/python3", python), 0);
        OK(cg_kernel_env_find(python, &by_python, &err));
        assert_string_equal(by_python, env);
        FAILS(CG_E_INVAL, "", cg_kernel_env_find(config, &none, &err));

        FAILS(CG_E_NOTFOUND, "cellgate env create no-such", cg_kernel_env_find("no-such", &none, &err));
        FAILS(CG_E_NOTFOUND, "", cg_kernel_env_find("./no/such", &none, &err));
        FAILS(CG_E_INVAL, "", cg_kernel_env_find("..", &none, &err));
        FAILS(CG_E_INVAL, "", cg_kernel_env_find("", &none, &err));
        unsetenv("XDG_DATA_HOME");
}

TEST_WITH(test_versions, enter, leave_folder)
{
        char version[64];

        accepted();
        assert_true(cg_kernel_env_fits(env, version));
        assert_string_equal(version, CG_PYTHON_VERSION ".1");
        /* Conda and virtualenv spell the lines otherwise. */
        env_file("pyvenv.cfg", "version_info=3.0.0.final.0 \r\n");
        assert_true(cg_kernel_env_fits(env, version));
        assert_string_equal(version, "3.0.0.final.0");
        env_file("pyvenv.cfg", "# version\n");
        assert_true(cg_kernel_env_fits(env, version));
        assert_string_equal(version, "");

        write_config("3.1.4");
        remove_file(env, "bin/python");
        assert_false(cg_kernel_env_fits(env, version));
        assert_string_equal(version, "3.1.4");
        refused(CG_E_INVAL, "is of Python 3.1.4, but kernels need Python " CG_PYTHON_VERSION);
        make_folders(path_in("env/lib/python3.1t/site-packages"));
        refused(CG_E_INVAL, "is of a free-threaded build of Python");
        remove_file(env, "pyvenv.cfg");
        refused(CG_E_INVAL, "is no virtual environment");
}

TEST_WITH(test_states, enter, leave_folder)
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

        for (size_t i = 0; i < CG_ARRAY_LEN(rows); i++) {
                if (rows[i].text)
                        env_file(CG_ENV_STATE, rows[i].text);
                assert_int_equal(cg_kernel_env_state(env), rows[i].state);
                assert_int_equal(cg_kernel_env_is_ours(env), rows[i].ours);
                if (rows[i].state == CG_ENV_UNFINISHED)
                        refused(CG_E_STATE, "is being changed");
                else
                        accepted();
        }
}

TEST_WITH(test_base_python, enter, leave_folder)
{
        cg_auto_free char *link = path_of(test_dir, "link"), *base = NULL;
        char home[PATH_MAX], text[2 * PATH_MAX], *none = NULL;

        assert_int_equal(symlink(home_dir, link), 0);
        snprintf(text, sizeof(text), "home = %s\n", link);
        env_file("pyvenv.cfg", text);
        assert_true(cg_pyvenv_home(env, home, sizeof(home)));
        assert_string_equal(home, link);
        assert_false(cg_pyvenv_home(env, home, strlen(link)));
        OK(cg_kernel_env_base(env, &base, &err));
        assert_string_equal(base, home_dir);

        env_file("pyvenv.cfg", "home = bin\n");
        assert_false(cg_pyvenv_home(env, home, sizeof(home)));
        env_file("pyvenv.cfg", "homes = /usr/bin\nhome\n");
        assert_false(cg_pyvenv_home(env, home, sizeof(home)));
        env_file("pyvenv.cfg", "home = /no/such/folder\n");
        OK(cg_kernel_env_base(env, &none, &err));
        assert_null(none);
        FAILS(ANY_ERROR, "", cg_kernel_env_base(home_dir, &none, &err));
}

/* Each row is written to a .pth file; %s is the test's folder. */
TEST_WITH(test_pth_files, enter, leave_folder)
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
        char text[2 * PATH_MAX];

        for (size_t i = 0; i < CG_ARRAY_LEN(rows); i++) {
                const char *at = strstr(rows[i].line, "%s");

                snprintf(text, sizeof(text), "%.*s%s%s\n", at ? (int)(at - rows[i].line) : 0, rows[i].line,
                         at ? test_dir : "", at ? at + 2 : rows[i].line);
                env_file(PACKAGES "/more.pth", text);
                if (rows[i].outside)
                        refused(CG_E_INVAL, "more.pth leads to ");
                else
                        accepted();
        }
        /* A neighbour whose name begins like that of the library folder is not in it. */
        make_folders(path_in("base/libs"));
        snprintf(text, sizeof(text), "%s/base/libs\n", test_dir);
        env_file(PACKAGES "/more.pth", text);
        refused(CG_E_INVAL, "/base/libs, outside of it");
        /* Without a known base Python its library folder allows nothing. */
        env_file("pyvenv.cfg", "version = " CG_PYTHON_VERSION "\n");
        refused(CG_E_INVAL, "/base/libs, outside of it");
}

TEST_WITH(test_packages_elsewhere, enter, leave_folder)
{
        cg_auto_free char *packages = path_of(env, PACKAGES), *inner = path_of(packages, "inner"),
                          *link = path_of(packages, "linked"), *target = path_of(test_dir, "elsewhere"),
                          *fifo = path_of(packages, "pipe.pth");

        make_folders(path_in("env/" PACKAGES "/real"));
        assert_int_equal(symlink("real", inner), 0);
        accepted();
        assert_int_equal(symlink(target, link), 0);
        refused(CG_E_INVAL, "linked leads to ");
        remove_file(packages, "linked");
        accepted();
        env_file(PACKAGES "/__editable___mine_finder.py", "");
        refused(CG_E_INVAL, "a package's source folder");
        remove_file(packages, "__editable___mine_finder.py");
        /* A .pth file that is no regular file is not read, and does not block. */
        assert_int_equal(mkfifo(fifo, 0600), 0);
        assert_true(cg_kernel_env_check(env, NULL) < 0);
}

/* site.py reads the base Python's, too, unless pyvenv.cfg has "false". */
TEST_WITH(test_packages_of_the_base, enter, leave_folder)
{
        char text[2 * PATH_MAX], folder[PATH_MAX];

        make_folders(path_in("base/local/" DIST));
        snprintf(text, sizeof(text), "%s/elsewhere\n", test_dir);
        write_file(path_in("base/local/" DIST "/mine.pth"), text);
        accepted();
        assert_false(cg_kernel_env_system_packages(env, 0, folder));
        for (size_t i = 0; i < 2; i++) {
                snprintf(text, sizeof(text), "home = %s\nversion = " CG_PYTHON_VERSION ".1\n%s", home_dir,
                         i ? "include-system-site-packages = True\n" : "");
                env_file("pyvenv.cfg", text);
                assert_true(cg_kernel_env_system_packages(env, 3, folder));
                refused(CG_E_INVAL, DIST "/mine.pth leads to ");
        }
        snprintf(text, sizeof(text), "%s/base/share\n", test_dir);
        make_folders(path_in("base/share"));
        write_file(path_in("base/local/" DIST "/mine.pth"), text);
        accepted();
}
