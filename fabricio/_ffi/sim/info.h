/* What fi_getinfo(3) says of the simulated NICs. */
#ifndef SIM_INFO_H
#define SIM_INFO_H

#include "nic.h"

#define SIM_PROVIDER "sim"
#define SIM_FABRIC   "simulated"

int sim_getinfo(uint32_t version, const char *node, const char *service,
		uint64_t flags, const struct fi_info *hints,
		struct fi_info **list);

/* Describe hardware that does not exist. NULL: no memory. */
struct fid_nic *sim_hardware_open(struct sim_nic *nic);

/* libfabric's own, of the version that runs: a provider's fi_info has that
 * version's layout, whatever headers the provider was built with. */
struct sim_libfabric {
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	void (*freeinfo)(struct fi_info *info);
	uint32_t (*version)(void);
};

const struct sim_libfabric *sim_libfabric(void);

#endif
