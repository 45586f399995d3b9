#include "wire.h"

#include "cq.h"
#include "ep.h"

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#define VARIABLE "FABSIM_CONFIG"

static struct sim_wire the_wire = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* With the mutex held. */
static int wire_configure(struct sim_wire *wire, const char *text, char *error,
			  size_t bytes)
{
	struct sim_config config;
	struct sim_nic *nics;
	int ret;

	if (wire->domain_count) {
		snprintf(error, bytes,
			 "%u domains are open on the simulated NICs: close "
			 "them first",
			 wire->domain_count);
		return -FI_EBUSY;
	}
	ret = sim_config_parse(&config, text);
	if (ret) {
		snprintf(error, bytes, "%s", config.error);
		return ret;
	}
	nics = sim_alloc(sizeof(*nics) * config.nic_count);
	if (!nics) {
		sim_config_destruct(&config);
		return -FI_ENOMEM;
	}
	for (uint32_t i = 0; i < config.nic_count; i++)
		sim_nic_construct(&nics[i], &config, i);
	sim_config_destruct(&wire->config);
	free(wire->nics);
	wire->config = config;
	wire->nics = nics;
	if (!wire->configured) {
		fab_list_construct(&wire->domains);
		fab_list_construct(&wire->cqs);
		fab_list_construct(&wire->endpoints);
		if (getrandom(&wire->process, sizeof(wire->process), 0) < 0)
			wire->process = (uint64_t) time(NULL);
		wire->configured = 1;
	}
	return 0;
}

struct sim_wire *sim_wire_enter(int *ret)
{
	struct sim_wire *wire = &the_wire;
	const char *text;
	char error[256] = "";

	pthread_mutex_lock(&wire->mutex);
	*ret = 0;
	if (wire->configured)
		return wire;
	text = getenv(VARIABLE);
	*ret = wire_configure(wire, text ? text : "", error, sizeof(error));
	if (*ret)
		fprintf(stderr, "libfabsim: " VARIABLE ": %s\n", error);
	return wire;
}

void sim_wire_leave(struct sim_wire *wire)
{
	pthread_mutex_unlock(&wire->mutex);
}

int sim_wire_configure(const char *text, char *error, size_t bytes)
{
	struct sim_wire *wire = &the_wire;
	int ret;

	pthread_mutex_lock(&wire->mutex);
	ret = wire_configure(wire, text, error, bytes);
	pthread_mutex_unlock(&wire->mutex);
	return ret;
}

void sim_wire_cleanup(void)
{
	struct sim_wire *wire = &the_wire;

	pthread_mutex_lock(&wire->mutex);
	/* Whoever left a domain open still uses its NIC. */
	if (!wire->domain_count) {
		sim_config_destruct(&wire->config);
		free(wire->nics);
		wire->nics = NULL;
		wire->configured = 0;
	}
	pthread_mutex_unlock(&wire->mutex);
}

struct sim_nic *sim_wire_nic(struct sim_wire *wire, uint32_t index)
{
	return wire->configured && index < wire->config.nic_count ?
		       &wire->nics[index] :
		       NULL;
}

struct sim_ep *sim_wire_endpoint(struct sim_wire *wire,
				 const struct sim_address *address)
{
	struct fab_link *link;

	if (address->process != wire->process)
		return NULL;
	for (link = wire->endpoints.next; link != &wire->endpoints;
	     link = link->next) {
		struct sim_ep *ep = FAB_ENTRY(link, struct sim_ep, link);

		if (ep->address.endpoint == address->endpoint)
			return ep;
	}
	return NULL;
}

void sim_wire_rouse(struct sim_wire *wire)
{
	struct fab_link *link;

	if (!wire->configured)
		return;
	for (link = wire->cqs.next; link != &wire->cqs; link = link->next)
		sim_cq_rouse(FAB_ENTRY(link, struct sim_cq, link));
}

uint64_t sim_now(void)
{
	struct timespec now;

	if (the_wire.config.virtual_clock)
		return atomic_load(&the_wire.now_ns);
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000000ull + (uint64_t) now.tv_nsec;
}

void sim_advance(uint64_t ns)
{
	/* Sequentially consistent: cq.h, C3. */
	atomic_fetch_add(&the_wire.now_ns, ns);
}
