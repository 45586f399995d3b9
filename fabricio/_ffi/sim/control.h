/* What a test calls besides libfabric: exported by the plugin, found with
 * dlsym, so plain numbers and text only. NICs are counted from 0. Every function
 * may be called from any thread at any time. Those that return an int return 0
 * or a negative fi_errno: -FI_ENODEV if there is no such NIC. */
#ifndef FABSIM_CONTROL_H
#define FABSIM_CONTROL_H

#include <stddef.h>
#include <stdint.h>

/* Read settings as in FABSIM_CONFIG (config.h) over the defaults, and start
 * anew: no fault scripted, all counts 0. -FI_EBUSY while a domain is open.
 * `error` gets the reason. */
int fabsim_configure(const char *settings, char *error, size_t error_bytes);
uint32_t fabsim_nic_count(void);

/* Operation number `operation` from now on, counted from 0 among those that are
 * accepted and of `kind` ("write", "read", "send", "rma", "any"), is not
 * performed, and completes with positive `err` and with prov_errno. At most 64
 * may wait on a NIC. */
int fabsim_fail(uint32_t nic, const char *kind, uint64_t operation, int err,
		int prov_errno);
/* The next `count` posts are refused with -FI_EAGAIN. */
int fabsim_again(uint32_t nic, uint64_t count);
/* Each post is refused so with this probability, until it is set to 0; which
 * ones, the seed says. */
int fabsim_storm(uint32_t nic, double probability, uint64_t seed);
/* The NIC goes down after so many ns: its operations fail as unreachable, those
 * to it as not responding. What landed before completes. */
int fabsim_down(uint32_t nic, uint64_t after_ns);
int fabsim_up(uint32_t nic);
/* What goes to or from the NIC's endpoints, or the one at an address, is lost:
 * its operations never complete, until the address is removed. */
int fabsim_silence(uint32_t nic, int silent);
int fabsim_silence_endpoint(const void *address, size_t bytes, int silent);
/* The CQs that are open on the NIC are overrun, for ever. */
int fabsim_overrun(uint32_t nic);
/* Forget every script; what is down comes up, who is silent speaks. */
void fabsim_heal(void);

/* Move the virtual clock (clock=virtual), and rouse whoever sleeps. */
void fabsim_advance(uint64_t ns);

/* The name of a count; NULL: there is none of this number, nor of any larger.
 */
const char *fabsim_counter_name(uint32_t counter);
/* The sum over all domains, open and closed, since the configuration. */
int fabsim_counter(uint32_t nic, uint32_t counter, uint64_t *value);

#endif
