/* Shared by the fuzz targets, whose inputs are foreign bytes. What must hold aborts if not. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

__attribute__((unused)) static inline void must(bool ok)
{
        if (!ok)
                abort();
}
