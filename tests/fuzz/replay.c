/*
 * Runs a fuzz target over the files of its arguments, in builds without libFuzzer. The last name on
 * standard error is that of the input that ended it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/util.h"
#include "fuzz.h"

#define INPUT_S 10 /* as -timeout of libFuzzer in scripts/run_tests.py */

/* In a buffer of its own size, so that the sanitizer reports what reads past its end. */
static void replay(const char *path)
{
        cg_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        cg_auto_free uint8_t *data = NULL;
        struct stat st;

        fprintf(stderr, "%s\n", path);
        if (fd < 0 || fstat(fd, &st) < 0 || !(data = malloc((size_t)st.st_size)) ||
            read(fd, data, (size_t)st.st_size) != st.st_size) {
                perror("cannot read it");
                exit(1);
        }
        alarm(INPUT_S);
        LLVMFuzzerTestOneInput(data, (size_t)st.st_size);
        alarm(0);
}

int main(int argc, char **argv)
{
        for (int i = 1; i < argc; i++)
                replay(argv[i]);
        return 0;
}
