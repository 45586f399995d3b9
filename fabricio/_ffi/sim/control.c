#include "control.h"

#include "cq.h"
#include "ep.h"

#include <rdma/fi_errno.h>

#define EXPORT __attribute__((visibility("default")))

static const char *const counter_names[SIM_COUNTS] = {
	[SIM_WRITES_POSTED] = "writes_posted",
	[SIM_READS_POSTED] = "reads_posted",
	[SIM_SENDS_POSTED] = "sends_posted",
	[SIM_COMPLETIONS] = "completions",
	[SIM_ERRORS] = "errors",
	[SIM_BYTES] = "bytes",
	[SIM_IMMEDIATES] = "immediates",
	[SIM_MESSAGES] = "messages",
	[SIM_AGAIN] = "again",
	[SIM_NOT_READY] = "not_ready",
};

/* The NIC, with the wire's mutex held; NULL, and not held: there is none. */
static struct sim_nic *control_enter(uint32_t index, struct sim_wire **wire)
{
	struct sim_nic *nic;
	int ret;

	*wire = sim_wire_enter(&ret);
	nic = sim_wire_nic(*wire, index);
	if (!nic)
		sim_wire_leave(*wire);
	return nic;
}

/* What sleeps may have waited for what was just scripted. */
static void control_leave(struct sim_wire *wire)
{
	sim_wire_rouse(wire);
	sim_wire_leave(wire);
}

EXPORT int fabsim_configure(const char *settings, char *error,
			    size_t error_bytes)
{
	if (error_bytes)
		error[0] = '\0';
	return sim_wire_configure(settings, error, error_bytes);
}

EXPORT uint32_t fabsim_nic_count(void)
{
	struct sim_wire *wire;
	uint32_t count;
	int ret;

	wire = sim_wire_enter(&ret);
	count = wire->configured ? wire->config.nic_count : 0;
	sim_wire_leave(wire);
	return count;
}

static uint32_t control_kinds(const char *kind)
{
	static const struct {
		const char *name;
		uint32_t kinds;
	} table[] = {
		{"write", SIM_WRITE},
		{"read", SIM_READ},
		{"send", SIM_SEND},
		{"rma", SIM_WRITE | SIM_READ},
		{"any", SIM_WRITE | SIM_READ | SIM_SEND},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (!strcmp(table[i].name, kind))
			return table[i].kinds;
	}
	return 0;
}

EXPORT int fabsim_fail(uint32_t index, const char *kind, uint64_t operation,
		       int err, int prov_errno)
{
	struct sim_verdict verdict = {.err = err, .prov_errno = prov_errno};
	uint32_t kinds = control_kinds(kind);
	struct sim_wire *wire;
	struct sim_nic *nic;
	int ret;

	if (!kinds || err <= 0)
		return -FI_EINVAL;
	nic = control_enter(index, &wire);
	if (!nic)
		return -FI_ENODEV;
	ret = sim_nic_fail(nic, kinds, operation, verdict);
	control_leave(wire);
	return ret;
}

EXPORT int fabsim_again(uint32_t index, uint64_t count)
{
	struct sim_wire *wire;
	struct sim_nic *nic = control_enter(index, &wire);

	if (!nic)
		return -FI_ENODEV;
	sim_nic_again(nic, count);
	control_leave(wire);
	return 0;
}

EXPORT int fabsim_storm(uint32_t index, double probability, uint64_t seed)
{
	struct sim_wire *wire;
	struct sim_nic *nic;

	/* At 1 nothing would ever be posted; written so that a NaN fails. */
	if (!(probability >= 0 && probability < 1))
		return -FI_EINVAL;
	nic = control_enter(index, &wire);
	if (!nic)
		return -FI_ENODEV;
	sim_nic_storm(nic, (uint64_t) (probability * 0x1p64), seed);
	control_leave(wire);
	return 0;
}

EXPORT int fabsim_down(uint32_t index, uint64_t after_ns)
{
	struct sim_wire *wire;
	struct sim_nic *nic = control_enter(index, &wire);

	if (!nic)
		return -FI_ENODEV;
	sim_nic_down(nic, sim_now() + after_ns);
	control_leave(wire);
	return 0;
}

EXPORT int fabsim_up(uint32_t index)
{
	struct sim_wire *wire;
	struct sim_nic *nic = control_enter(index, &wire);

	if (!nic)
		return -FI_ENODEV;
	sim_nic_up(nic);
	control_leave(wire);
	return 0;
}

EXPORT int fabsim_silence(uint32_t index, int silent)
{
	struct sim_wire *wire;
	struct sim_nic *nic = control_enter(index, &wire);

	if (!nic)
		return -FI_ENODEV;
	sim_nic_silence(nic, silent);
	control_leave(wire);
	return 0;
}

EXPORT int fabsim_silence_endpoint(const void *address, size_t bytes,
				   int silent)
{
	struct sim_address at;
	struct sim_wire *wire;
	struct sim_ep *ep = NULL;
	int ret;

	if (bytes != sizeof(at))
		return -FI_EINVAL;
	memcpy(&at, address, sizeof(at));
	wire = sim_wire_enter(&ret);
	if (!ret)
		ep = sim_wire_endpoint(wire, &at);
	if (ep)
		atomic_store_explicit(&ep->silent, !!silent,
				      memory_order_relaxed);
	control_leave(wire);
	return ep ? 0 : -FI_ENOENT;
}

EXPORT int fabsim_overrun(uint32_t index)
{
	struct sim_wire *wire;
	struct sim_nic *nic = control_enter(index, &wire);
	struct fab_link *link;

	if (!nic)
		return -FI_ENODEV;
	for (link = wire->cqs.next; link != &wire->cqs; link = link->next) {
		struct sim_cq *cq = FAB_ENTRY(link, struct sim_cq, link);

		if (cq->domain->nic == nic)
			sim_cq_overrun(cq);
	}
	control_leave(wire);
	return 0;
}

EXPORT void fabsim_heal(void)
{
	struct fab_link *link;
	struct sim_wire *wire;
	int ret;

	wire = sim_wire_enter(&ret);
	if (!ret) {
		for (uint32_t i = 0; i < wire->config.nic_count; i++)
			sim_nic_heal(&wire->nics[i]);
		for (link = wire->endpoints.next; link != &wire->endpoints;
		     link = link->next)
			atomic_store_explicit(
				&FAB_ENTRY(link, struct sim_ep, link)->silent,
				0, memory_order_relaxed);
	}
	control_leave(wire);
}

EXPORT void fabsim_advance(uint64_t ns)
{
	struct sim_wire *wire;
	int ret;

	wire = sim_wire_enter(&ret);
	sim_advance(ns);
	control_leave(wire);
}

EXPORT const char *fabsim_counter_name(uint32_t counter)
{
	return counter < SIM_COUNTS ? counter_names[counter] : NULL;
}

EXPORT int fabsim_counter(uint32_t index, uint32_t counter, uint64_t *value)
{
	struct sim_wire *wire;
	struct sim_nic *nic;
	struct fab_link *link;

	if (counter >= SIM_COUNTS)
		return -FI_EINVAL;
	nic = control_enter(index, &wire);
	if (!nic)
		return -FI_ENODEV;
	*value = atomic_load_explicit(&nic->closed.value[counter],
				      memory_order_relaxed);
	for (link = wire->domains.next; link != &wire->domains;
	     link = link->next) {
		const struct sim_domain *domain =
			FAB_ENTRY(link, const struct sim_domain, link);

		if (domain->nic == nic)
			*value += atomic_load_explicit(
				&domain->counters.value[counter],
				memory_order_relaxed);
	}
	sim_wire_leave(wire);
	return 0;
}
