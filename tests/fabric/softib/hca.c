// SPDX-License-Identifier: GPL-2.0
/*
 * One HCA, as a device of rdmavt and ib_core.
 */
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "softib.h"

/* rdmavt uses the PCI device of an HCA only for its name in messages. */
static struct pci_dev pci_stand_in = {
	.dev.init_name = "softib",
};

static struct pci_dev *get_pci_dev(struct rvt_dev_info *rdi)
{
	return &pci_stand_in;
}

static int get_guid_be(struct rvt_dev_info *rdi, struct rvt_ibport *ibport,
		       int index, __be64 *guid)
{
	if (index)
		return -EINVAL;
	*guid = rdi_to_softib(rdi)->guid;
	return 0;
}

static int query_port_state(struct rvt_dev_info *rdi, softib_port_t port,
			    struct ib_port_attr *attr)
{
	struct softib_hca *hca = rdi_to_softib(rdi);

	attr->lid = softib_port_lid(hca);
	attr->state = READ_ONCE(hca->state);
	attr->phys_state = softib_port_phys_state(hca);
	attr->gid_tbl_len = 1;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = softib_port_mtu;
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = READ_ONCE(hca->rate)->speed;
	attr->max_vl_num = 1;
	return 0;
}

/* ibportstate may request it, but only the cable changes the link. */
static int shut_down_port(struct rvt_dev_info *rdi, softib_port_t port)
{
	return -EOPNOTSUPP;
}

static void cap_mask_chg(struct rvt_dev_info *rdi, softib_port_t port)
{
}

static void notify_new_ah(struct ib_device *ibdev, struct rdma_ah_attr *attr,
			  struct rvt_ah *ah)
{
	ah->log_pmtu = ilog2(ib_mtu_enum_to_int(softib_port_mtu));
}

static int modify_device(struct ib_device *ibdev, int mask,
			 struct ib_device_modify *attr)
{
	if (mask & ~IB_DEVICE_MODIFY_NODE_DESC)
		return -EOPNOTSUPP;
	if (mask & IB_DEVICE_MODIFY_NODE_DESC)
		memcpy(ibdev->node_desc, attr->node_desc,
		       sizeof(ibdev->node_desc));
	return 0;
}

/* `ip link set dev ibN vf M node_guid ...` or `port_guid ...` comes here. */
static int set_vf_guid(struct ib_device *ibdev, int vf, softib_port_t port,
		       u64 guid, int type)
{
	return softib_function_set(to_softib(ibdev), vf, guid, type);
}

/* `ip link set dev ibN vf M state ...` comes here. */
static int set_vf_link_state(struct ib_device *ibdev, int vf,
			     softib_port_t port, int state)
{
	return softib_function_state(to_softib(ibdev), vf, state);
}

/*
 * Because this function exists, ib_core can move or unregister the device while
 * processes have it open.  It does nothing: user space maps only queues in
 * memory, and each mapping keeps its queue alive.
 */
static void disassociate_ucontext(struct ib_ucontext *context)
{
}

/*
 * rdmavt requires a sysfs entry for the ports of every driver.  Before Linux
 * 5.14 that was a function, and ib_core does not move a device with such a
 * function between namespaces: drop_leftovers() removes it.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 14, 0)
static int init_port(struct ib_device *ibdev, softib_port_t port,
		     struct kobject *kobj)
{
	return 0;
}
#else
static const struct attribute_group *no_port_groups[] = { NULL };
#endif

static const struct ib_device_ops softib_device_ops = {
	.owner = THIS_MODULE,
	/* A driver of rdmavt; rdma-core selects its provider by this id. */
	.driver_id = RDMA_DRIVER_HFI1,
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 14, 0)
	.init_port = init_port,
#else
	.port_groups = no_port_groups,
#endif
	.modify_device = modify_device,
	.process_mad = softib_process_mad,
	.disassociate_ucontext = disassociate_ucontext,
	.set_vf_guid = set_vf_guid,
	.set_vf_link_state = set_vf_link_state,
	.rdma_netdev_get_params = softib_accel_params,
};

/*
 * rdmavt keeps a MAD agent for this number of ports, to send traps.  softib
 * sends none, and such an agent would become stale when the device moves to
 * another namespace.  Before Linux 5.14 rdmavt also returns EINVAL for a query
 * of a port above this number (ibport_num_to_index()), which fails the
 * registration of the device.  There the number is 1, and drop_leftovers()
 * closes the agent.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 14, 0)
#define TRAP_PORTS 1
#else
#define TRAP_PORTS 0
#endif

static void set_params(struct softib_hca *hca)
{
	hca->rdi.dparms = (struct rvt_driver_params) {
		.lkey_table_size = 16,
		.qp_table_size = 256,
		.qpn_start = 1,
		.qpn_inc = 1,
		.qos_shift = 1,
		/* Reserved for accelerated IPoIB. */
		.qpn_res_start = SOFTIB_UNDERLAY_QPN,
		.qpn_res_end = SOFTIB_UNDERLAY_QPN + SOFTIB_UNDERLAY_QPS - 1,
		.psn_mask = 0xffffff,
		.psn_shift = 8,
		.psn_modify_mask = 0xffffff,
		.nports = TRAP_PORTS,
		.npkeys = SOFTIB_PKEYS,
		.node = 0,
		.core_cap_flags = RDMA_CORE_PORT_IBA_IB,
		.max_mad_size = IB_MGMT_MAD_SIZE,
		.sge_copy_mode = RVT_SGE_COPY_MEMCPY,
		.max_rdma_atomic = 16,
		.props = {
			.sys_image_guid = hca->guid,
			.device_cap_flags = IB_DEVICE_BAD_PKEY_CNTR |
				IB_DEVICE_BAD_QKEY_CNTR |
				IB_DEVICE_SYS_IMAGE_GUID |
				IB_DEVICE_PORT_ACTIVE_EVENT |
				IB_DEVICE_RC_RNR_NAK_GEN |
				IB_DEVICE_SRQ_RESIZE |
				IB_DEVICE_MEM_MGT_EXTENSIONS,
			.page_size_cap = PAGE_SIZE,
			.max_mr_size = U64_MAX,
			.max_mr = 0x10000,
			.max_qp = 16384,
			.max_qp_wr = 16383,
			.max_send_sge = 32,
			.max_recv_sge = 32,
			.max_sge_rd = 32,
			.max_cq = 65535,
			.max_cqe = 0x2ffff,
			.max_pd = 65535,
			.max_ah = 65535,
			.max_qp_rd_atom = 16,
			.max_qp_init_rd_atom = 16,
			.max_srq = 1024,
			.max_srq_wr = 0x1ffff,
			.max_srq_sge = 32,
			.max_fast_reg_page_list_len = 256,
			.atomic_cap = IB_ATOMIC_GLOB,
			.masked_atomic_cap = IB_ATOMIC_NONE,
			.max_pkeys = SOFTIB_PKEYS,
			.max_mcast_grp = 16384,
			.max_mcast_qp_attach = 256,
			.max_total_mcast_qp_attach = 256 * 16384,
		},
	};
}

static void set_name(struct softib_hca *hca)
{
	struct ib_device *ibdev = &hca->rdi.ibdev;

	/* rdmavt prints the name before ib_core sets it. */
	dev_set_name(&ibdev->dev, "softib%u", hca->unit);
	strscpy(ibdev->name, dev_name(&ibdev->dev), IB_DEVICE_NAME_MAX);
	snprintf(ibdev->node_desc, sizeof(ibdev->node_desc), "softib%u",
		 hca->unit);
}

static void set_ops(struct rvt_dev_info *rdi)
{
	rdi->driver_f.get_pci_dev = get_pci_dev;
	rdi->driver_f.get_guid_be = get_guid_be;
	rdi->driver_f.query_port_state = query_port_state;
	rdi->driver_f.shut_down_port = shut_down_port;
	rdi->driver_f.cap_mask_chg = cap_mask_chg;
	rdi->driver_f.notify_new_ah = notify_new_ah;
	softib_qp_ops(rdi);
	ib_set_device_ops(&rdi->ibdev, &softib_device_ops);
}

/**
 * softib_hca_create - allocate and initialise an HCA
 * @pdev: its parent; the id of @pdev is the unit
 * @guids: its GUIDs
 * @pkeys: P_Key table
 * @rate: link rate
 * @state: state of the port
 *
 * Return: the HCA, not yet registered, or an ERR_PTR.
 */
struct softib_hca *softib_hca_create(struct platform_device *pdev,
				     const struct softib_guids *guids,
				     const u16 *pkeys,
				     const struct softib_rate *rate,
				     enum ib_port_state state)
{
	struct rvt_dev_info *rdi = rvt_alloc_device(sizeof(struct softib_hca), 1);
	struct softib_hca *hca;

	if (!rdi)
		return ERR_PTR(-ENOMEM);
	hca = rdi_to_softib(rdi);
	hca->pdev = pdev;
	hca->unit = pdev->id;
	hca->guid = guids->port;
	hca->lid = SOFTIB_FIRST_LID + hca->unit;
	hca->rate = rate;
	hca->state = state;
	mutex_init(&hca->lock);
	softib_sa_init(hca);
	memcpy(hca->pkeys, pkeys, sizeof(hca->pkeys));

	spin_lock_init(&hca->ibport.lock);
	hca->ibport.gid_prefix = cpu_to_be64(SOFTIB_GID_PREFIX);
	hca->ibport.sm_lid = SOFTIB_SM_LID;
	hca->ibport.subnet_timeout = SOFTIB_LIFETIME;
	hca->ibport.port_cap_flags = IB_PORT_SYS_IMAGE_GUID_SUP |
				     IB_PORT_CLIENT_REG_SUP;

	rdi->ibdev.node_guid = guids->node;
	rdi->ibdev.phys_port_cnt = 1;
	rdi->ibdev.dev.parent = &pdev->dev;
	set_name(hca);
	set_params(hca);
	set_ops(rdi);
	rvt_init_port(rdi, &hca->ibport, 0, hca->pkeys);
	return hca;
}

/* Removes what rdmavt before Linux 5.14 requires only during registration. */
static void drop_leftovers(struct softib_hca *hca)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 14, 0)
	struct ib_mad_agent *agent = hca->ibport.send_agent;

	hca->ibport.send_agent = NULL;
	if (agent)
		ib_unregister_mad_agent(agent);
	/*
	 * The function does nothing.  If it stayed, ib_device_set_netns_put()
	 * would return EOPNOTSUPP, as it does for hfi1.
	 */
	hca->rdi.ibdev.ops.init_port = NULL;
#endif
}

/**
 * softib_hca_register - register an HCA, after its partitions
 * @hca: the HCA; the switch must have it already, because its clients send
 *       packets at once
 *
 * Return: 0 or a negative errno.
 */
int softib_hca_register(struct softib_hca *hca)
{
	unsigned int i;
	int ret;

	for (i = 0; i < SOFTIB_PKEYS; i++) {
		ret = softib_partition_provide(hca->pkeys[i]);
		if (ret)
			return ret;
	}
	ret = rvt_register_device(&hca->rdi);
	if (!ret)
		drop_leftovers(hca);
	return ret;
}

void softib_hca_unregister(struct softib_hca *hca)
{
	rvt_unregister_device(&hca->rdi);
}

void softib_hca_free(struct softib_hca *hca)
{
	rvt_dealloc_device(&hca->rdi);
}
