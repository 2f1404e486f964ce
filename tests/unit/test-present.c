/* Which rows of the table of names are there in a folder: sandbox/names/present.h. */
#include <dirent.h>

#include "sandbox/names/names.h"
#include "sandbox/names/present.h"
#include "unit.h"

static size_t opened;

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);

/* The number of folders that are listed. */
DIR *__wrap_opendir(const char *path)
{
        opened++;
        return __real_opendir(path);
}

struct home {
        struct cg_present present;
};

static int set_up(void **state)
{
        struct home *h = calloc(1, sizeof(*h));

        *state = h;
        return enter_folder(NULL);
}

static int tear_down(void **state)
{
        struct home *h = *state;

        cg_present_fini(&h->present);
        free(h);
        return leave_folder(NULL);
}

static void look(struct home *h, unsigned int what)
{
        opened = 0;
        OK(cg_present_scan(&h->present, test_dir, what, NULL, &err));
}

static bool has(const struct home *h, const char *row)
{
        size_t n;
        const struct cg_name *rows = cg_names(&n);

        for (size_t i = 0; i < n; i++) {
                if (!strcmp(rows[i].path, row))
                        return h->present.rows[i] != 0;
        }
        fail_msg("the table has no row %s", row);
        return false;
}

static size_t count(const struct home *h)
{
        size_t n, found = 0;

        cg_names(&n);
        for (size_t i = 0; i < n; i++)
                found += h->present.rows[i] != 0;
        return found;
}

TEST_WITH(test_rows_of_one_name_and_of_several, set_up, tear_down)
{
        struct home *h = *state;

        write_file(path_in(".bashrc"), "");
        write_file(path_in("README"), "");
        make_folders(path_in(".config"));
        make_folders(path_in(".config/fish"));
        write_file(path_in(".config/README"), "");
        look(h, CG_NAME_WRITE);
        assert_true(has(h, ".bashrc"));
        assert_true(has(h, ".config/fish"));
        assert_false(has(h, ".config/git"));
        assert_false(has(h, ".zshrc"));
        assert_int_equal(count(h), 2);
}

/* One scan for two kinds finds what a scan for each finds. */
TEST_WITH(test_two_kinds_in_one_scan, set_up, tear_down)
{
        static const char *const files[] = { ".bashrc", ".NPMRC", ".config/fish/config.fish",
                                             ".ssh/id_ed25519", ".local/share/keyrings/x" };
        struct home *h = *state;
        struct cg_present write = { 0 }, hide = { 0 };
        size_t n;

        cg_names(&n);
        make_folders(path_in(".config"));
        make_folders(path_in(".config/fish"));
        make_folders(path_in(".ssh"));
        make_folders(path_in(".local"));
        make_folders(path_in(".local/share"));
        make_folders(path_in(".local/share/keyrings"));
        for (size_t i = 0; i < CG_ARRAY_LEN(files); i++)
                write_file(path_in(files[i]), "");
        OK(cg_present_scan(&write, test_dir, CG_NAME_WRITE, NULL, &err));
        OK(cg_present_scan(&hide, test_dir, CG_NAME_HIDE, NULL, &err));
        look(h, CG_NAME_WRITE | CG_NAME_HIDE);
        assert_true(has(h, ".bashrc"));
        assert_true(has(h, ".npmrc"));
        for (size_t i = 0; i < n; i++)
                assert_int_equal(h->present.rows[i], write.rows[i] | hide.rows[i]);
        cg_present_fini(&write);
        cg_present_fini(&hide);
}

TEST_WITH(test_only_rows_of_the_kind, set_up, tear_down)
{
        struct home *h = *state;

        write_file(path_in(".bashrc"), "");
        write_file(path_in(".netrc"), "");
        look(h, CG_NAME_HIDE);
        assert_true(has(h, ".netrc"));
        assert_int_equal(count(h), 1);
}

TEST_WITH(test_patterns, set_up, tear_down)
{
        struct home *h = *state;

        make_folders(path_in(".claude"));
        write_file(path_in(".claude/settings.local.json"), "");
        write_file(path_in(".claude/settings.txt"), "");
        write_file(path_in("my.code-workspace"), "");
        look(h, CG_NAME_WRITE);
        assert_true(has(h, ".claude/settings*.json"));
        assert_true(has(h, "*.code-workspace"));
        assert_int_equal(count(h), 2);
}

/* Some file systems compare names so; whether it is the row is up to who opens it. */
TEST_WITH(test_names_in_another_case, set_up, tear_down)
{
        struct home *h = *state;

        write_file(path_in(".BashRC"), "");
        look(h, CG_NAME_WRITE);
        assert_true(has(h, ".bashrc"));
        assert_int_equal(count(h), 1);
}

TEST_WITH(test_folders_behind_links, set_up, tear_down)
{
        struct home *h = *state;

        make_folders(path_in("dotfiles"));
        assert_int_equal(symlink("dotfiles", path_in(".config")), 0);
        assert_int_equal(symlink("nowhere", path_in(".claude")), 0);
        assert_int_equal(symlink("nowhere", path_in(".bashrc")), 0);
        look(h, CG_NAME_WRITE);
        /* whatever is made there later */
        assert_true(has(h, ".config/fish"));
        assert_true(has(h, ".claude/settings*.json"));
        assert_true(has(h, ".bashrc"));
        assert_false(has(h, ".local/bin"));
        assert_false(has(h, ".profile"));
}

/* A folder that cannot be listed (here: a loop of links) may contain any row. */
TEST_WITH(test_a_folder_that_cannot_be_listed, set_up, tear_down)
{
        struct home *h = *state;

        assert_int_equal(symlink(".config", path_in(".config")), 0);
        look(h, CG_NAME_WRITE);
        assert_true(has(h, ".config/fish"));
        assert_true(has(h, ".config/git"));
        assert_false(has(h, ".bashrc"));
}

/*
 * A kernel's start must not have a system call for each row: a folder is listed once, and only
 * where rows go on in it.
 */
TEST_WITH(test_folders_are_listed_once, set_up, tear_down)
{
        struct home *h = *state;

        make_folders(path_in(".config"));
        make_folders(path_in(".claude"));
        make_folders(path_in("src"));
        look(h, CG_NAME_WRITE | CG_NAME_HIDE);
        assert_int_equal(opened, 3);
}
