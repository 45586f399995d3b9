/* How operations fail: EFA's own numbers, and the fi_errno that its provider
 * gives with each. */
#ifndef SIM_STATUS_H
#define SIM_STATUS_H

enum sim_status {
	SIM_OK = 0,
	SIM_FLUSHED = 1,
	SIM_INVALID_LKEY = 5,
	SIM_BAD_ADDRESS = 7,
	SIM_BAD_DEST_QPN = 9,
	SIM_BAD_LENGTH = 11,
	SIM_UNRESP_REMOTE = 13,
	SIM_UNREACH_REMOTE = 15,
};

/* The positive fi_errno of a status. */
int sim_status_errno(enum sim_status status);
const char *sim_status_text(int prov_errno);

#endif
