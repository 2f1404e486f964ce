/* Homes that are scanned once and used while nothing changes there: settings/homes.h, stamps.h. */
#include <time.h>

#include "sandbox/names/names.h"
#include "sandbox/names/present.h"
#include "sandbox/settings/homes.h"
#include "sandbox/settings/name_links.h"
#include "sandbox/names/stamps.h"
#include "unit.h"

/* Seconds that the clock is ahead of the file system's. */
static time_t ahead;

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
        int r = __real_clock_gettime(id, ret);

        ret->tv_sec += ahead;
        return r;
}

/* The account's own home changes when others write there. */
const char *__wrap_cg_account_home(char ret[PATH_MAX]);

const char *__wrap_cg_account_home(char ret[PATH_MAX])
{
        (void)ret;
        return NULL;
}

static void link_to(const char *target, const char *name)
{
        assert_int_equal(symlink(target, path_in(name)), 0);
}

static int set_up(void **state)
{
        static const char *const folders[] = { ".config", ".config/fish", ".vim",
                                               ".vim/a",  ".vim/a/b",     ".vim/a/b/c" };

        ahead = 60;
        assert_int_equal(enter_folder(state), 0);
        for (size_t i = 0; i < CG_ARRAY_LEN(folders); i++)
                assert_int_equal(mkdir(path_in(folders[i]), 0700), 0);
        write_file(path_in(".bashrc"), "");
        return 0;
}

static json_t *scan(struct cg_stamps *stamps)
{
        json_t *homes = cg_homes_scan(test_dir, stamps);

        assert_non_null(homes);
        return homes;
}

TEST_WITH(test_what_is_used_is_what_was_found, set_up, leave_folder)
{
        cg_auto_present struct cg_present found = { 0 }, used = { 0 };
        cg_auto_stamps struct cg_stamps stamps = { 0 };
        cg_auto_json json_t *homes = NULL;
        size_t n;

        link_to("/elsewhere/x", ".vim/out");
        link_to("../../../x", ".vim/a/b/out");
        link_to("a", ".vim/stays");
        link_to("/elsewhere/x", ".vim/a/b/c/too-deep");
        link_to("/elsewhere/y", ".zshrc");
        homes = scan(&stamps);
        assert_true(cg_homes_get(homes, test_dir, &used));
        OK(cg_present_scan(&found, test_dir, CG_NAME_WRITE | CG_NAME_HIDE, NULL, &err));
        OK(cg_name_links_find(&found, NULL, &err));
        cg_names(&n);
        assert_string_equal(used.folder, found.folder);
        assert_memory_equal(used.rows, found.rows, n);
        assert_int_equal(used.n_links, 2);
        assert_int_equal(found.n_links, 2);
        for (size_t i = 0; i < 2; i++)
                assert_string_equal(used.links[i], found.links[i]);
        cg_present_fini(&used);
        assert_false(cg_homes_get(homes, "/nobody's", &used));
        assert_false(cg_homes_get(NULL, test_dir, &used));
}

static void make_name(void)
{
        write_file(path_in(".profile"), "");
}

static void make_link(void)
{
        link_to("/elsewhere/x", ".vim/a/b/new");
}

static void remove_name(void)
{
        assert_int_equal(unlink(path_in(".bashrc")), 0);
}

static void rename_name(void)
{
        assert_int_equal(rename(path_in(".bashrc"), path_in(".config/fish/config.fish")), 0);
}

static void make_hooks(void)
{
        assert_int_equal(mkdir(path_in(".git"), 0700), 0);
}

/* The same name, another folder: its content is older than the stamps. */
static void replace_folder(void)
{
        assert_int_equal(rename(path_in(".vim/a"), path_in(".vim/a.old")), 0);
        assert_int_equal(rename(path_in(".vim/a.old/b"), path_in(".vim/a")), 0);
}

TEST_WITH(test_every_change_ends_it, set_up, leave_folder)
{
        static void (*const changes[])(void) = { make_name,   make_link,  remove_name,
                                                 rename_name, make_hooks, replace_folder };

        for (size_t i = 0; i < CG_ARRAY_LEN(changes); i++) {
                cg_auto_stamps struct cg_stamps stamps = { 0 };
                cg_auto_json json_t *homes = scan(&stamps);

                assert_true(cg_stamps_hold(&stamps));
                changes[i]();
                assert_false(cg_stamps_hold(&stamps));
                leave_folder(state);
                set_up(state);
        }
}

/* Changes within a moment may have the same time. */
TEST_WITH(test_a_folder_that_has_just_changed_is_scanned_again, set_up, leave_folder)
{
        cg_auto_stamps struct cg_stamps stamps = { 0 };
        cg_auto_json json_t *homes = NULL;

        ahead = 0;
        homes = scan(&stamps);
        assert_false(cg_stamps_hold(&stamps));
}
