/* Which provider, and what fi_getinfo(3) says of it. */
#ifndef FAB_PROVIDER_H
#define FAB_PROVIDER_H

#include "error.h"

#include <rdma/fabric.h>

/* API version that is asked for: 1.17 runs on 1.17 and on 2.x alike. */
#define FAB_API_VERSION FI_VERSION(1, 17)

/* Most pages that one operation may carry. */
#define FAB_MAX_SEGMENTS 8u

/* The first usable info for a provider, a NIC's domain name and a source address
 * (NULL: any); the caller owns it (fi_freeinfo). -FI_ENODATA if there is none.
 * [worker] */
int fab_provider_find(const char *provider, const char *nic, const char *source,
		      struct fi_info **info, struct fab_error *error);

#endif
