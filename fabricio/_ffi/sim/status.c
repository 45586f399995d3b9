#include "status.h"

#include <rdma/fi_errno.h>
#include <stddef.h>

static const struct {
	enum sim_status status;
	int err;
	const char *text;
} statuses[] = {
	{SIM_OK, 0, "simulated: no error"},
	{SIM_FLUSHED, FI_ECANCELED,
	 "simulated: flushed, the address was removed"},
	{SIM_INVALID_LKEY, FI_EINVAL,
	 "simulated: the local memory is not registered for this"},
	{SIM_BAD_ADDRESS, FI_EINVAL,
	 "simulated: remote key, address or access is not valid"},
	{SIM_BAD_DEST_QPN, FI_ENOTCONN,
	 "simulated: the remote endpoint is closed or never was"},
	{SIM_BAD_LENGTH, FI_ETRUNC,
	 "simulated: the message is longer than the receive"},
	{SIM_UNRESP_REMOTE, FI_ECONNABORTED,
	 "simulated: the remote NIC does not respond, it is down"},
	{SIM_UNREACH_REMOTE, FI_EHOSTUNREACH,
	 "simulated: the remote is unreachable, this NIC is down"},
};

#define COUNT (sizeof(statuses) / sizeof(statuses[0]))

int sim_status_errno(enum sim_status status)
{
	for (size_t i = 0; i < COUNT; i++) {
		if (statuses[i].status == status)
			return statuses[i].err;
	}
	return FI_EOTHER;
}

const char *sim_status_text(int prov_errno)
{
	for (size_t i = 0; i < COUNT; i++) {
		if ((int) statuses[i].status == prov_errno)
			return statuses[i].text;
	}
	return "simulated: a scripted failure";
}
