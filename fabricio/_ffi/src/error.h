/* Filling struct fab_error. */
#ifndef FAB_ERROR_H
#define FAB_ERROR_H

#include "fabricio.h"

/* Overwrite `error`; text may be NULL. Returns code. [any] */
int fab_error_set(struct fab_error *error, int code, const char *call,
		  int provider_code, const char *text);

/* A heap copy for a completion; NULL when memory is out. [any] */
struct fab_error *fab_error_copy(const struct fab_error *error);

/* Move a completion's error to *first, or free it if that has one. [loop] */
void fab_error_keep_first(struct fab_error **first,
			  struct fab_completion *completion);

/* 1 if the code says that the peer or the way to it is gone. [any] */
int fab_error_is_peer(int code);

#endif
