/* The `nic` part of an info: device, bus and link. */
#include "info.h"

#include <rdma/fi_errno.h>
#include <stdio.h>

#define NIC_MTU 8760

/* One allocation: what fid_nic points at lies beside it. */
struct sim_hardware {
	struct fid_nic fid;
	struct fi_device_attr device;
	struct fi_bus_attr bus;
	struct fi_link_attr link;
	char name[24];
	char address[48];
};

static char device_id[] = "0x51b0", device_version[] = "1",
	    vendor_id[] = "simulated", driver[] = "libfabsim",
	    firmware[] = "none: simulated", network_type[] = "simulated";

static int hardware_close(struct fid *fid)
{
	free(FAB_ENTRY(fid, struct sim_hardware, fid.fid));
	return 0;
}

static int hardware_control(struct fid *fid, int command, void *arg);

static struct fi_ops hardware_ops = {
	.size = sizeof(struct fi_ops),
	.close = hardware_close,
	.control = hardware_control,
};

/* Point at the parts of its own. */
static void hardware_connect(struct sim_hardware *hardware)
{
	hardware->fid.fid.fclass = FI_CLASS_NIC;
	hardware->fid.fid.ops = &hardware_ops;
	hardware->fid.device_attr = &hardware->device;
	hardware->fid.bus_attr = &hardware->bus;
	hardware->fid.link_attr = &hardware->link;
	hardware->device.name = hardware->name;
	hardware->device.device_id = device_id;
	hardware->device.device_version = device_version;
	hardware->device.vendor_id = vendor_id;
	hardware->device.driver = driver;
	hardware->device.firmware = firmware;
	hardware->link.address = hardware->address;
	hardware->link.network_type = network_type;
}

static int hardware_control(struct fid *fid, int command, void *arg)
{
	const struct sim_hardware *hardware =
		FAB_ENTRY(fid, const struct sim_hardware, fid.fid);
	struct sim_hardware *copy;

	if (command != FI_DUP)
		return -FI_ENOSYS;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return -FI_ENOMEM;
	*copy = *hardware;
	hardware_connect(copy);
	*(struct fid_nic **) arg = &copy->fid;
	return 0;
}

struct fid_nic *sim_hardware_open(struct sim_nic *nic)
{
	struct sim_hardware *hardware = calloc(1, sizeof(*hardware));

	if (!hardware)
		return NULL;
	hardware_connect(hardware);
	snprintf(hardware->name, sizeof(hardware->name), "%s", nic->name);
	snprintf(hardware->address, sizeof(hardware->address), "simulated-%u",
		 nic->index);
	hardware->bus.bus_type = FI_BUS_PCI;
	hardware->bus.attr.pci = nic->pci;
	hardware->link.mtu = NIC_MTU;
	hardware->link.speed = nic->bits_per_s;
	hardware->link.state = sim_nic_is_down(nic) ? FI_LINK_DOWN : FI_LINK_UP;
	return &hardware->fid;
}
