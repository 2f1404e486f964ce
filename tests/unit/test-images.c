/* Images as files: the kernel chooses the bytes, and neither name nor place. */
#include "cli/common/images.h"
#include "unit.h"

/* Every test has a folder of its own as the current one. */
static int enter(void **state)
{
        return enter_folder(state) < 0 ? -1 : chdir(test_dir);
}

static int leave(void **state)
{
        return chdir("/") < 0 ? -1 : leave_folder(state);
}

static void save(struct cg_images *im, uint64_t cell, const char *extension, const char *want)
{
        cg_auto_free char *path = NULL;

        OK(cg_images_write(im, cell, extension, "data", 4, &path, &err));
        assert_string_equal(path, want);
        assert_int_equal(access(path, R_OK), 0);
}

TEST_WITH(test_names, enter, leave)
{
        struct cg_images *im;

        assert_int_equal(cg_images_new("images/", &im, NULL), 0);
        assert_int_equal(access("images", F_OK), -1); /* not before there is something in it */
        save(im, 3, "png", "images/cell3-1.png");
        save(im, 3, "svg", "images/cell3-2.svg");
        save(im, 4, "png", "images/cell4-1.png");
        save(im, 3, "png", "images/cell3-2.png");
        cg_images_free(im);
        assert_int_equal(cg_images_new(".", &im, NULL), 0);
        save(im, 1, "jpg", "./cell1-1.jpg");
        cg_images_free(im);
}

/* The folder above is the one that was there before any cell ran. */
TEST_WITH(test_a_link_above_is_refused_in_relative_paths, enter, leave)
{
        struct cg_images *im = NULL;

        assert_int_equal(mkdir("secret", 0700), 0);
        /* as an earlier kernel could do in the workspace */
        assert_int_equal(symlink("secret", "plots"), 0);
        FAILS(CG_E_SYS, "symbolic link", cg_images_new("plots/today", &im, &err));
        /* written out in full it is what the user wants */
        OK(cg_images_new(path_in("plots/today"), &im, &err));
        cg_images_free(im);
}

TEST_WITH(test_folder_above_cannot_be_swapped, enter, leave)
{
        struct cg_images *im;
        cg_auto_free char *path = NULL;

        assert_int_equal(mkdir("out", 0700), 0);
        assert_int_equal(mkdir("secret", 0700), 0);
        assert_int_equal(cg_images_new("out/images", &im, NULL), 0);
        assert_int_equal(rename("out", "moved"), 0);
        assert_int_equal(symlink("secret", "out"), 0);
        assert_int_equal(cg_images_write(im, 1, "png", "data", 4, &path, NULL), 0);
        assert_int_equal(access("moved/images/cell1-1.png", R_OK), 0);
        assert_int_equal(rmdir("secret"), 0);
        cg_images_free(im);
}

TEST_WITH(test_bad_folders, enter, leave)
{
        cg_auto_free char *path = NULL;
        struct cg_images *im;

        FAILS(CG_E_INVAL, "", cg_images_new("", &im, &err));
        FAILS(CG_E_SYS, "none", cg_images_new("none/images", &im, &err));
        assert_int_equal(close(open("file", O_WRONLY | O_CREAT, 0600)), 0);
        OK(cg_images_new("file", &im, &err));
        FAILS(CG_E_SYS, "file", cg_images_write(im, 1, "png", "data", 4, &path, &err));
        cg_images_free(im);
}
