package main

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// serviceSystem is the HostServiceSystem. Its one service of interest is Xorg.
type serviceSystem struct {
	mo.HostServiceSystem
	lab  *Lab
	host *gpuHost
}

func hostServices(hasGpu bool) types.HostServiceInfo {
	return types.HostServiceInfo{Service: []types.HostService{
		{Key: "TSM-SSH", Label: "SSH", Policy: "off"},
		{Key: "ntpd", Label: "NTP Daemon", Policy: "on", Running: true},
		{Key: "xorg", Label: "X.Org Server", Policy: "on", Running: hasGpu},
	}}
}

func (s *serviceSystem) find(id string) *types.HostService {
	for i := range s.ServiceInfo.Service {
		if s.ServiceInfo.Service[i].Key == id {
			return &s.ServiceInfo.Service[i]
		}
	}
	return nil
}

func (s *serviceSystem) running(id string) bool {
	service := s.find(id)
	return service != nil && service.Running
}

// turn switches a service and applies the graphics configuration when Xorg comes up.
func (s *serviceSystem) turn(ctx *simulator.Context, id string, running bool) *refusal {
	service := s.find(id)
	if service == nil {
		return refuse(&types.NotFound{}, "The service %s was not found on host %s.", id, s.host.name)
	}
	service.Running = running
	ctx.Update(s, []types.PropertyChange{{Name: "serviceInfo", Val: s.ServiceInfo}})
	if id == "xorg" && running {
		return s.restartXorg(ctx)
	}
	return nil
}

func (s *serviceSystem) RestartService(ctx *simulator.Context, req *types.RestartService) soap.HasFault {
	if refused := s.turn(ctx, req.Id, true); refused != nil {
		return refused.soap()
	}
	return &methods.RestartServiceBody{Res: &types.RestartServiceResponse{}}
}

func (s *serviceSystem) StartService(ctx *simulator.Context, req *types.StartService) soap.HasFault {
	if s.running(req.Id) {
		return refuse(&types.InvalidState{}, "The service %s is already running.", req.Id).soap()
	}
	if refused := s.turn(ctx, req.Id, true); refused != nil {
		return refused.soap()
	}
	return &methods.StartServiceBody{Res: &types.StartServiceResponse{}}
}

func (s *serviceSystem) StopService(ctx *simulator.Context, req *types.StopService) soap.HasFault {
	if refused := s.turn(ctx, req.Id, false); refused != nil {
		return refused.soap()
	}
	return &methods.StopServiceBody{Res: &types.StopServiceResponse{}}
}

func (s *serviceSystem) RefreshServices(*types.RefreshServices) soap.HasFault {
	return &methods.RefreshServicesBody{Res: &types.RefreshServicesResponse{}}
}
