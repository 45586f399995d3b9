/* The wire: what all simulated NICs of the process share. It is the provider's
 * only global state, since libfabric hands a provider none of its own. */
#ifndef SIM_WIRE_H
#define SIM_WIRE_H

#include "common.h"
#include "config.h"
#include "nic.h"

#include <pthread.h>

/* Where an endpoint is found; what fi_getname gives. */
struct sim_address {
	char magic[8];
	uint64_t process; /* random: nobody else's addresses mean anything */
	uint64_t endpoint;
	uint32_t nic;
	uint32_t zero;
};

#define SIM_ADDRESS_MAGIC  "fabsim1"
#define SIM_ADDRESS_FORMAT ((1u << 31) | 0x73696du)

struct sim_ep;

/* W1 `mutex` guards every field but now_ns, and everything that changes who can
 *    reach whose memory: endpoints, paths to them, keys. It is never taken to
 *    post, to land or to read a CQ.
 * W2 locks are taken in this order: mutex, paths', a target's receives', NICs'.
 * W3 NICs and settings change only while no domain is open. */
struct sim_wire {
	pthread_mutex_t mutex;
	int configured;
	struct sim_config config;
	struct sim_nic *nics; /* owned, config.nic_count */
	uint32_t domain_count;
	struct fab_link domains;   /* struct sim_domain */
	struct fab_link cqs;       /* struct sim_cq */
	struct fab_link endpoints; /* enabled struct sim_ep */
	uint64_t locked_bytes;     /* of all regions that are open */
	uint64_t process;
	uint64_t endpoint_number;
	_Atomic uint64_t now_ns; /* the virtual clock; writer: sim_advance */
};

/* The wire, with its mutex held. Settings are read from FABSIM_CONFIG when it
 * was not configured before; `*ret` says whether that went well. [any] */
struct sim_wire *sim_wire_enter(int *ret);
void sim_wire_leave(struct sim_wire *wire);

/* Replace settings and NICs: 0, -FI_EBUSY (W3), -FI_EINVAL with the reason in
 * `error`, -FI_ENOMEM. [any] */
int sim_wire_configure(const char *text, char *error, size_t bytes);
/* Free all; the provider is being unloaded. */
void sim_wire_cleanup(void);

/* With the mutex held. NULL: there is none. */
struct sim_nic *sim_wire_nic(struct sim_wire *wire, uint32_t index);
struct sim_ep *sim_wire_endpoint(struct sim_wire *wire,
				 const struct sim_address *address);
/* Rouse whoever sleeps on a CQ: something else than an arrival happened. */
void sim_wire_rouse(struct sim_wire *wire);

/* Monotonic, or virtual: only moved by sim_advance. While a domain is open.
 * [any] */
uint64_t sim_now(void);
void sim_advance(uint64_t ns);

#endif
