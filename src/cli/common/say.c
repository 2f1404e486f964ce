/* Results on standard output, failures on standard error. */
#include <string.h>
#include "base/buf.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/common/cli.h"
#include "cli/common/screen.h"

int cg_cli_fail(const char *command, const struct cg_err *err)
{
        cg_auto_buf struct cg_buf shown = { .max = sizeof(err->msg) * 16 };
        cg_auto_buf struct cg_buf b = { .max = sizeof(err->msg) * 64 };

        /* Names and servers' text in it may hold the mark of questions and notes. */
        if (cg_buf_try_addf(&b, NULL, "cellgate%s%s: ", *command ? " " : "", command) == 0 &&
            cg_text_try_render(&shown, err->msg, strlen(err->msg), 0, NULL) == 0 &&
            cg_screen_break_mark(shown.data ? shown.data : "", shown.len, &b) == 0 &&
            cg_buf_try_adds(&b, "\n", NULL) == 0)
                cg_write_all(2, b.data, b.len, NULL);
        return CG_EXIT_USAGE;
}

int cg_cli_print(const char *text)
{
        struct cg_err err;

        if (cg_write_all(1, text, strlen(text), &err) == 0)
                return CG_EXIT_OK;
        cg_err_prefix(&err, "standard output");
        return cg_cli_fail("", &err);
}
