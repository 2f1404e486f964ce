/* --webhook: tells a URL about questions that wait for another terminal. */
#pragma once

#include "cellgate.h"

/*
 * Starts a thread that follows the questions of this process's sessions, by a connection of its
 * own to the supervisor of clients with the options @o, whose texts and @url are borrowed for the
 * process's life. @url NULL: nothing. It ends with the process.
 */
int cg_webhook_start(const char *url, const struct cg_client_options *o, struct cg_err *err);
