// A virtual network for the site on FC1. From it, the site reaches its storage accounts: see
// private-endpoints.bicep. main.bicep makes the IDs of the two subnets from their names.

@description('Name of the network.')
param name string

@description('The Azure region.')
param location string

@description('Tags of the resources.')
param tags object

// The services of a storage account that a site uses: its tables, and the Functions host's keys,
// locks, package and queues.
var services = [
  'blob'
  'queue'
  'table'
]

// From version 2025-07-01 on, subnets have no outbound access by default. This one needs it for
// Application Insights and the sign-in provider. A newer version would need defaultOutboundAccess.
resource network 'Microsoft.Network/virtualNetworks@2025-05-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    addressSpace: {
      addressPrefixes: [
        '10.0.0.0/24'
      ]
    }
    subnets: [
      {
        name: 'site'
        properties: {
          addressPrefix: '10.0.0.0/25'
          delegations: [
            {
              name: 'flex'
              properties: {
                serviceName: 'Microsoft.App/environments'
              }
            }
          ]
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: '10.0.0.128/27'
        }
      }
    ]
  }
}

resource zones 'Microsoft.Network/privateDnsZones@2024-06-01' = [
  for service in services: {
    name: 'privatelink.${service}.${environment().suffixes.storage}'
    location: 'global'
    tags: tags
  }
]

resource links 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = [
  for (service, i) in services: {
    parent: zones[i]
    name: name
    location: 'global'
    tags: tags
    properties: {
      registrationEnabled: false
      virtualNetwork: {
        id: network.id
      }
    }
  }
]
