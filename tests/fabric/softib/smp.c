// SPDX-License-Identifier: GPL-2.0
/*
 * The port's subnet management agent: it responds to the requests of
 * administrators' tools (smpquery, ibaddr).  It accepts no settings: the
 * built-in subnet manager configures ports without packets.
 */
#include <rdma/ib_smi.h>

#include "softib.h"

#define PKEYS_PER_BLOCK	32

/* The bytes of PortInfo after struct ib_port_info, IBA 14.2.5.6. */
#define LINK_SPEED_EXT_ACTIVE_SUPPORTED	62
#define LINK_SPEED_EXT_ENABLED		63

/* LinkSpeedExt: FDR, EDR, HDR, NDR are 1, 2, 4, 8; slower links have none. */
static u8 speed_ext(const struct softib_rate *rate)
{
	return rate->speed >= IB_SPEED_FDR ? rate->speed / IB_SPEED_FDR : 0;
}

static void get_node_info(struct softib_hca *hca, struct ib_node_info *info)
{
	info->base_version = IB_MGMT_BASE_VERSION;
	info->class_version = 1;
	info->node_type = RDMA_NODE_IB_CA;
	info->num_ports = 1;
	info->sys_guid = hca->guid;
	info->node_guid = hca->rdi.ibdev.node_guid;
	info->port_guid = hca->guid;
	info->partition_cap = cpu_to_be16(SOFTIB_PKEYS);
	info->local_port_num = 1;
}

static void get_port_info(struct softib_hca *hca, u8 *data)
{
	struct ib_port_info *info = (void *)data;
	const struct softib_rate *rate = READ_ONCE(hca->rate);
	u8 state = READ_ONCE(hca->state);
	u8 phys = softib_port_phys_state(hca);
	u8 speed = min_t(u16, rate->speed, IB_SPEED_QDR);

	info->gid_prefix = hca->ibport.gid_prefix;
	info->lid = cpu_to_be16(softib_port_lid(hca));
	info->sm_lid = cpu_to_be16(hca->ibport.sm_lid);
	info->cap_mask = cpu_to_be32(hca->ibport.port_cap_flags);
	info->local_port_num = 1;
	info->link_width_enabled = IB_WIDTH_4X;
	info->link_width_supported = IB_WIDTH_4X;
	info->link_width_active = IB_WIDTH_4X;
	info->linkspeed_portstate = speed << 4 | state;
	info->portphysstate_linkdown = phys << 4 | IB_PORT_PHYS_STATE_POLLING;
	info->linkspeedactive_enabled = speed << 4 | speed;
	info->neighbormtu_mastersmsl = softib_port_mtu << 4;
	info->vlcap_inittype = 1 << 4;
	info->inittypereply_mtucap = IB_MTU_4096;
	info->operationalvl_pei_peo_fpi_fpo = 1 << 4;
	info->pkey_violations = cpu_to_be16(hca->ibport.pkey_violations);
	info->qkey_violations = cpu_to_be16(hca->ibport.qkey_violations);
	info->guid_cap = 1;
	info->clientrereg_resv_subnetto = hca->ibport.subnet_timeout;
	data[LINK_SPEED_EXT_ACTIVE_SUPPORTED] =
		speed_ext(rate) << 4 | speed_ext(rate);
	data[LINK_SPEED_EXT_ENABLED] = speed_ext(rate);
}

/* Return: false if the block is beyond the table. */
static bool get_pkey_table(struct softib_hca *hca, u32 block, __be16 *out)
{
	unsigned int i;

	if (block >= DIV_ROUND_UP(SOFTIB_PKEYS, PKEYS_PER_BLOCK))
		return false;
	for (i = 0; i < PKEYS_PER_BLOCK; i++)
		out[i] = cpu_to_be16(READ_ONCE(hca->pkeys[block *
							  PKEYS_PER_BLOCK + i]));
	return true;
}

static __be16 get(struct softib_hca *hca, struct ib_smp *smp)
{
	u32 modifier = be32_to_cpu(smp->attr_mod);
	struct ib_device *ibdev = &hca->rdi.ibdev;

	memset(smp->data, 0, sizeof(smp->data));
	switch (smp->attr_id) {
	case IB_SMP_ATTR_NODE_DESC:
		memcpy(smp->data, ibdev->node_desc, sizeof(smp->data));
		return 0;
	case IB_SMP_ATTR_NODE_INFO:
		get_node_info(hca, (void *)smp->data);
		return 0;
	case IB_SMP_ATTR_PORT_INFO:
		if (modifier > 1)
			break;
		get_port_info(hca, smp->data);
		return 0;
	case IB_SMP_ATTR_GUID_INFO:
		if (modifier)
			break;
		*(__be64 *)smp->data = hca->guid;
		return 0;
	case IB_SMP_ATTR_PKEY_TABLE:
		if (!get_pkey_table(hca, modifier & 0xffff, (void *)smp->data))
			break;
		return 0;
	default:
		return cpu_to_be16(IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB);
	}
	return cpu_to_be16(IB_MGMT_MAD_STATUS_INVALID_ATTRIB_VALUE);
}

/**
 * softib_smp_answer - respond to a subnet management packet
 * @hca: the port that received it
 * @smp: a Get or Set, directed or by LID; becomes the response
 */
void softib_smp_answer(struct softib_hca *hca, struct ib_smp *smp)
{
	if (smp->method == IB_MGMT_METHOD_GET)
		smp->status = get(hca, smp);
	else
		smp->status = cpu_to_be16(IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD);
	smp->method = IB_MGMT_METHOD_GET_RESP;
	if (smp->mgmt_class == IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE)
		smp->status |= IB_SMP_DIRECTION;
}
