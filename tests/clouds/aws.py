"""An AWS account for tests: what is arranged, and what is judged, goes to moto past the proxy."""

import os
from importlib import import_module
from typing import Any

from tests.clouds.iam import Resources
from tests.clouds.strict import StrictAws

from flyball_actuators.platforms.pools import CLOUDS as CLOUDS, cloud
from flyball_actuators.platforms.pools.platform import PoolPlatform
from flyball_contracts.config import PlatformConfig, PoolConfig

REGION, TYPE, CELL = "eu-west-1", "p4d.24xlarge", "cell-a"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


class Account:
    """One launch template, and what tests add; ``proxy`` is what the driver talks to."""

    def __init__(self, moto: str, proxy: StrictAws) -> None:
        os.environ.update(CREDENTIALS)
        boto3: Any = import_module("boto3")
        self.session: Any = boto3.Session(region_name=REGION)
        self.proxy = proxy
        self.ec2, self.asg, self.eks, self.iam = (
            self.session.client(name, endpoint_url=moto) for name in ("ec2", "autoscaling", "eks", "iam")
        )
        proxy.resources = Resources(REGION, self.ec2, self.asg, self.eks, self.iam)
        image = self.ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        data = {"ImageId": image, "InstanceType": TYPE}
        tagged = [{"ResourceType": "launch-template", "Tags": [{"Key": "flyball.dev/pool", "Value": "any"}]}]
        self.ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=data, TagSpecifications=tagged)
        self.ec2.create_launch_template(LaunchTemplateName="gpu-untagged", LaunchTemplateData=data)
        for name, role_path in (("gpu-flyball", "/flyball/"), ("gpu-admin", "/")):
            self.iam.create_role(RoleName=name, Path=role_path, AssumeRolePolicyDocument="{}")
            self.iam.create_instance_profile(InstanceProfileName=name)
            self.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
            with_role = {**data, "IamInstanceProfile": {"Name": name}}
            self.ec2.create_launch_template(
                LaunchTemplateName=name, LaunchTemplateData=with_role, TagSpecifications=tagged
            )
        self.subnet = self.ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        self._count = 0

    def fleet(self, market: str = "on_demand", template: str = "gpu", **more: Any) -> PoolConfig:
        """A pool of its own; ``template`` is the launch template."""
        zones = (f"{REGION}a",)
        return _pool("fleet", self._new("fleet"), template, market=market, zones=zones, **more)

    def group(self, machines: int, most: int = 8, *, tagged: bool = True, **more: Any) -> PoolConfig:
        """An Auto Scaling group; ``tagged`` as a pool's, as are its machines."""
        name = self._new("asg")
        self.asg.create_auto_scaling_group(
            AutoScalingGroupName=name,
            LaunchTemplate={"LaunchTemplateName": "gpu", "Version": "$Default"},
            MinSize=0,
            MaxSize=most,
            DesiredCapacity=machines,
            VPCZoneIdentifier=self.subnet,
            Tags=[_tag(name, ResourceId=name, ResourceType="auto-scaling-group", PropagateAtLaunch=True)] * tagged,
        )
        return _pool("auto_scaling_group", name, name, **more)

    def node_group(self, machines: int, *, tagged: bool = True, **more: Any) -> PoolConfig:
        """A node group of EKS."""
        name, role = self._new("nodes"), "arn:aws:iam::123456789012:role/nodes"
        if not self.eks.list_clusters()["clusters"]:
            self.eks.create_cluster(name="gpus", roleArn=role, resourcesVpcConfig={"subnetIds": [self.subnet]})
        self.eks.create_nodegroup(
            clusterName="gpus",
            nodegroupName=name,
            subnets=[self.subnet],
            nodeRole=role,
            scalingConfig={"minSize": 0, "maxSize": 8, "desiredSize": machines},
            instanceTypes=[TYPE],
            capacityType="ON_DEMAND",
            tags={"flyball.dev/pool": name} if tagged else {},
        )
        return _pool("node_group", name, name, within="gpus", **more)

    def machines(self, pool: PoolConfig, state: str = "running") -> list[dict[str, Any]]:
        """Instances of a pool, as the cloud has them."""
        if pool.kind == "auto_scaling_group":
            group = self.shown(pool)
            filters = [{"Name": "instance-id", "Values": [one["InstanceId"] for one in group["Instances"]] or ["none"]}]
        else:
            filters = [{"Name": "tag:flyball.dev/pool", "Values": [pool.name]}]
        pages = self.ec2.describe_instances(Filters=[*filters, {"Name": "instance-state-name", "Values": [state]}])
        return [one for reservation in pages["Reservations"] for one in reservation["Instances"]]

    def size(self, pool: PoolConfig) -> int:
        """Machines that run, and are paid for."""
        if pool.kind == "node_group":
            found = self.eks.describe_nodegroup(clusterName="gpus", nodegroupName=pool.resource)
            return int(found["nodegroup"]["scalingConfig"]["desiredSize"])
        return len(self.machines(pool))

    def shown(self, pool: PoolConfig) -> dict[str, Any]:
        """An Auto Scaling group, as moto has it."""
        answer = self.asg.describe_auto_scaling_groups(AutoScalingGroupNames=[pool.resource])
        found: dict[str, Any] = answer["AutoScalingGroups"][0]
        return found

    def interrupt(self, pool: PoolConfig) -> str:
        """Take back the newest machine, as spot does."""
        name: str = self.machines(pool)[-1]["InstanceId"]
        self.ec2.terminate_instances(InstanceIds=[name])
        return name

    def entry(self, *pools: PoolConfig, **more: Any) -> PlatformConfig:
        """The entry of the configuration for these pools."""
        settings: dict[str, Any] = {"budget_usd_per_hour": 1000.0, "timeout_s": 20.0, "poll_s": 0.05, **more}
        return PlatformConfig(
            cells=(CELL,), driver="aws", region=REGION, url=self.proxy.url, pools=pools,
            **settings,
        )  # fmt: skip

    def platform(self, *pools: PoolConfig, busy: frozenset[str] = frozenset(), **more: Any) -> PoolPlatform:
        """A driver that knows nothing yet."""
        made = cloud(self.entry(*pools, **more), "actuator.platforms[0]", lambda _: busy)
        assert isinstance(made, PoolPlatform)
        return made

    def _new(self, stem: str) -> str:
        self._count += 1
        return f"{stem}-{self._count}"


def _tag(pool: str, **more: Any) -> dict[str, Any]:
    return {"Key": "flyball.dev/pool", "Value": pool, **more}


def _pool(kind: Any, name: str, resource: str, **more: Any) -> PoolConfig:
    settings: dict[str, Any] = {"max_machines": 8, "price_usd_per_hour": 32.0, "instance_type": TYPE, **more}
    return PoolConfig(name=name, kind=kind, resource=resource, **settings)
