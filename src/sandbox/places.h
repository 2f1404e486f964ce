/* The sandbox's own file systems: /dev, /proc, /sys. Private to src/sandbox; runs in init. */
#pragma once

#include "sandbox/cover.h"
#include "sandbox/plan.h"

/* Device nodes of the host, copied as mounts before all is made read-only and without devices. */
#define CG_DEV_NODES 6
struct cg_dev {
        int nodes[CG_DEV_NODES]; /* -1 when absent */
};

/* dev.c */
int cg_dev_collect(struct cg_dev *dev, struct cg_err *err);
void cg_dev_close(struct cg_dev *dev);
/* @memory: as cg_plan_tmpfs_size(). */
int cg_dev_mount(struct cg_dev *dev, uint64_t memory, int target, struct cg_err *err);

/* proc.c */
int cg_proc_mount(const struct cg_sandbox *sb, struct cg_cover *cover, int target, struct cg_err *err);
int cg_sys_mount(struct cg_cover *cover, int target, struct cg_err *err);
