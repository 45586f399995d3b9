/* Which provider, and what fi_getinfo(3) says of it. */
#ifndef FAB_PROVIDER_H
#define FAB_PROVIDER_H

#include "error.h"

#include <rdma/fabric.h>

/* API version that is asked for: 1.17 runs on 1.17 and on 2.x alike. */
#define FAB_API_VERSION FI_VERSION(1, 17)

/* Most pages that one operation may carry. */
#define FAB_MAX_SEGMENTS 8u

/* The `number`th usable info for the options' provider, domain and source;
 * the caller owns it (fi_freeinfo). -FI_ENODATA if there is none. [worker] */
int fab_provider_find(const struct fab_options *options, uint32_t number,
		      struct fi_info **info, struct fab_error *error);

#endif
