// A monthly budget for the resource group. It only warns, and stops nothing.

@description('Name of the budget.')
param name string

@description('The amount, in the subscription\'s currency.')
param amount int

@description('The first day of the month from which it counts. Azure refuses another date later.')
param startDate string

@description('Who is warned.')
param email string

resource budget 'Microsoft.Consumption/budgets@2024-08-01' = {
  name: name
  properties: {
    category: 'Cost'
    amount: amount
    timeGrain: 'Monthly'
    timePeriod: {
      startDate: startDate
    }
    notifications: {
      spent: {
        enabled: true
        operator: 'GreaterThanOrEqualTo'
        threshold: 80
        thresholdType: 'Actual'
        contactEmails: [
          email
        ]
      }
      forecast: {
        enabled: true
        operator: 'GreaterThanOrEqualTo'
        threshold: 100
        thresholdType: 'Forecasted'
        contactEmails: [
          email
        ]
      }
    }
  }
}
